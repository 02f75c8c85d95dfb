#include "src/report/run.hpp"

#include <algorithm>
#include <limits>

namespace trireme::report {
namespace {

std::int64_t time_of(const Attempt& attempt) {
  return attempt.start ? attempt.start->time : attempt.job_time.value_or(std::numeric_limits<std::int64_t>::min());
}

}  // namespace

std::vector<Attempt> join_attempts(std::vector<Attempt> attempts, const std::vector<JobNote>& notes) {
  constexpr std::int64_t clock_seconds = 2;  // tolerated clock skew of a host
  std::vector<Attempt> alone;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    if (notes[i].status) continue;
    const JobNote& begin = notes[i];
    const bool has_end = i + 1 < notes.size() && notes[i + 1].status && notes[i + 1].job == begin.job;
    std::int64_t end_time = std::numeric_limits<std::int64_t>::max();
    for (std::size_t next = i + 1; next < notes.size(); ++next) {
      if (notes[next].status) continue;
      end_time = notes[next].time;
      break;
    }
    Attempt* found = nullptr;
    for (Attempt& attempt : attempts) {
      const bool within = attempt.start->time >= begin.time - clock_seconds && attempt.start->time < end_time;
      // Without SLURM only the batch file has a number, that of its process.
      const bool is_job = attempt.start->job.empty() || attempt.start->job == begin.job;
      if (within && !attempt.job_time && is_job) found = &attempt;
    }
    if (found == nullptr) found = &alone.emplace_back();
    found->job_time = begin.time;
    found->job = begin.job;
    if (has_end) {
      found->job_status = notes[i + 1].status;
      found->job_end = notes[i + 1].time;
    }
  }
  attempts.insert(attempts.end(), alone.begin(), alone.end());
  std::ranges::stable_sort(attempts, {}, time_of);
  return attempts;
}

void Run::add_samples(SampleSet set) {
  if (samples.size() == max_sample_sets) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < samples.size(); i += 2) std::swap(samples[kept++], samples[i]);
    samples.resize(kept);
  }
  samples.push_back(std::move(set));
}

const AttemptStart* Run::newest_start() const {
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    if (attempt->start) return &*attempt->start;
  }
  return nullptr;
}

std::int64_t Run::lost_iterations() const {
  std::int64_t sum = repeated_iterations;
  for (const Attempt& attempt : attempts) sum += attempt.start ? attempt.start->lost_iterations : 0;
  return sum;
}

double Run::lost_ms() const {
  double sum = repeated_ms;
  for (const Attempt& attempt : attempts) sum += attempt.start ? attempt.start->lost_ms : 0;
  return sum;
}

}  // namespace trireme::report
