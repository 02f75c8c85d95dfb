#include "src/report/run.hpp"

#include <algorithm>
#include <limits>

namespace trireme::report {
namespace {

std::int64_t time_of(const Life& life) {
  return life.start ? life.start->time : life.job_time.value_or(std::numeric_limits<std::int64_t>::min());
}

}  // namespace

std::vector<Life> join_lives(std::vector<Life> lives, const std::vector<JobNote>& notes) {
  constexpr std::int64_t clock_seconds = 2;  // tolerated clock skew of a host
  std::vector<Life> alone;
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
    Life* found = nullptr;
    for (Life& life : lives) {
      const bool within = life.start->time >= begin.time - clock_seconds && life.start->time < end_time;
      if (within && !life.job_time && life.start->job == begin.job) found = &life;
    }
    if (found == nullptr) found = &alone.emplace_back();
    found->job_time = begin.time;
    found->job = begin.job;
    if (has_end) {
      found->job_status = notes[i + 1].status;
      found->job_end = notes[i + 1].time;
    }
  }
  lives.insert(lives.end(), alone.begin(), alone.end());
  std::ranges::stable_sort(lives, {}, time_of);
  return lives;
}

const LifeStart* Run::newest_start() const {
  for (auto life = lives.rbegin(); life != lives.rend(); ++life) {
    if (life->start) return &*life->start;
  }
  return nullptr;
}

std::int64_t Run::lost_iterations() const {
  std::int64_t sum = repeated_iterations;
  for (const Life& life : lives) sum += life.start ? life.start->lost_iterations : 0;
  return sum;
}

double Run::lost_ms() const {
  double sum = repeated_ms;
  for (const Life& life : lives) sum += life.start ? life.start->lost_ms : 0;
  return sum;
}

}  // namespace trireme::report
