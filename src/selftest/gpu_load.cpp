#include "src/selftest/gpu_load.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::selftest {
namespace {

/// Returns the median of one value of the samples; none if the GPU does not report it.
std::optional<double> median_of(const std::vector<GpuLoad>& samples, std::optional<double> GpuLoad::*value) {
  std::vector<double> values;
  for (const GpuLoad& sample : samples) {
    if (sample.*value) values.push_back(*(sample.*value));
  }
  if (values.empty()) return {};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

LoadWatch::LoadWatch(const Context& context) : min_share_(context.min_share) {
  if (!context.pci_address.empty()) monitor_.emplace(context.pci_address, context.nvml);
}

void LoadWatch::look() {
  constexpr double interval_s = 0.1;
  if (!monitor_ || (since_latest_ && since_latest_->elapsed_s() < interval_s)) return;
  since_latest_.emplace();
  if (const std::optional<GpuLoad> sample = monitor_->read()) samples_.push_back(*sample);
}

std::vector<Result> LoadWatch::results() const {
  if (samples_.empty()) return {};
  std::string detail;
  const auto add_text = [&](const std::string& text) { detail += (detail.empty() ? "" : ", ") + text; };
  if (const auto celsius = median_of(samples_, &GpuLoad::temperature_c)) add_text(fmt::format("{:.0f} C", *celsius));
  if (const auto watts = median_of(samples_, &GpuLoad::power_w)) add_text(fmt::format("{:.0f} W", *watts));
  double worst = 0;  // share of the samples with one of the faults
  for (const SlowdownReason& reason : slowdown_reasons) {
    const auto count = std::ranges::count_if(
        samples_, [&](const GpuLoad& sample) { return (sample.slowdowns.value_or(0) & reason.bit) != 0; });
    if (count == 0) continue;
    add_text(fmt::format("{} in {} of {} samples", reason.name, count, samples_.size()));
    if (reason.is_fault) worst = std::max(worst, static_cast<double>(count) / static_cast<double>(samples_.size()));
  }
  const bool is_known =
      std::ranges::any_of(samples_, [](const GpuLoad& sample) { return sample.slowdowns.has_value(); });
  std::vector<Result> results = {{.check = "GPU slowdown",
                                  .kind = is_known ? Kind::correctness : Kind::skipped,
                                  .passed = worst < 0.5,
                                  .value = 100 * worst,
                                  .unit = "% of time",
                                  .detail = is_known ? detail : "NVML reports no reasons for low clocks"}};
  for (const auto& [check, clock] :
       {std::pair{"GPU clock under load", median_of(samples_, &GpuLoad::clock_mhz)},
        {"GPU memory clock under load", median_of(samples_, &GpuLoad::memory_clock_mhz)}}) {
    if (!clock) continue;
    results.push_back({.check = check,
                       .kind = Kind::rate,
                       .value = *clock,
                       .unit = "MHz",
                       .min_share = min_share_,
                       .detail = detail});
  }
  return results;
}

}  // namespace trireme::selftest
