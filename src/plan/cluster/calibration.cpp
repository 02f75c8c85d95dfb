#include "src/plan/cluster/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "src/base/check.hpp"
#include "src/base/median.hpp"

namespace trireme::plan {
namespace {

/// Line with the time outside kernels, per kernel.
constexpr std::string_view beside_kernels = "step";

/// Returns those of `measured` with the number of ranks nearest to `ranks`, by ratio; ties go to fewer.
template <class Measured>
std::vector<Measured> nearest_ranks(const std::vector<Measured>& measured, int ranks) {
  const auto distance = [&](const Measured& one) {
    return std::pair(std::abs(std::log2(static_cast<double>(one.ranks) / ranks)), one.ranks);
  };
  std::vector<Measured> nearest;
  if (measured.empty()) return nearest;
  const auto best = distance(*std::ranges::min_element(measured, {}, distance));
  std::ranges::copy_if(measured, std::back_inserter(nearest), [&](const auto& one) { return distance(one) == best; });
  return nearest;
}

/// Keeps the median of several measurements of the same call, the shorter of two.
std::vector<MeasuredKernel> medians(std::vector<MeasuredKernel> calls) {
  const auto key = [](const MeasuredKernel& call) { return std::tie(call.kernel, call.shape, call.work, call.us); };
  std::ranges::sort(calls, {}, key);
  std::vector<MeasuredKernel> result;
  for (auto begin = calls.begin(); begin != calls.end();) {
    const auto end = std::find_if(begin, calls.end(), [&](const MeasuredKernel& call) {
      return call.kernel != begin->kernel || call.shape != begin->shape || call.work != begin->work;
    });
    result.push_back(begin[(end - begin - 1) / 2]);
    begin = end;
  }
  return result;
}

void set_kernels(Device& device, const std::vector<Calibration::Kernel>& kernels, int ranks) {
  std::vector<MeasuredKernel> calls;
  for (const Calibration::Kernel& kernel : nearest_ranks(kernels, ranks)) calls.push_back(kernel.call);
  calls = medians(std::move(calls));
  const auto beside = std::ranges::find(calls, beside_kernels, &MeasuredKernel::kernel);
  if (beside != calls.end()) {
    device.launch_gap_us = device.graph_gap_us = beside->us;
    calls.erase(beside);
  }
  device.measured = MeasuredKernels(calls);
}

void set_shares(Device& device, const std::vector<Calibration::Share>& shares) {
  double product_tflops = 0, copy_gbs = 0;
  std::vector<double> memory, norm_backward;
  for (const Calibration::Share& s : shares) {
    double& limit = s.moves_memory ? copy_gbs : product_tflops;
    limit = std::max(limit, s.limit);
    if (!s.moves_memory || s.kernel == "copy") continue;
    const bool is_norm_backward = s.kernel.find("orm, backward") != std::string::npos;
    (is_norm_backward ? norm_backward : memory).push_back(s.share);
  }
  if (product_tflops > 0) device.product_tflops = product_tflops;
  if (copy_gbs > 0) device.copy_gbs = copy_gbs;
  if (!memory.empty()) device.memory_share = median(memory);
  if (!norm_backward.empty()) device.norm_backward_share = median(norm_backward);
}

/// Steps of a collective's messages in a ring.
double steps_of(Collective collective, int ranks) {
  switch (collective) {
    case Collective::all_reduce:
      return 2.0 * (ranks - 1);
    case Collective::send_receive:
      return 1;
    default:
      return ranks - 1.0;
  }
}

void set_link(Link& link, const std::vector<Calibration::Transfer>& transfers, int ranks) {
  std::vector<MeasuredKernel> measured;
  for (const Calibration::Transfer& t : transfers) {
    measured.push_back({collective_name(t.collective, t.ranks), {}, t.bytes, t.us});
  }
  link.measured = MeasuredKernels(medians(std::move(measured)));
  constexpr double large_bytes = 256 << 10;
  std::vector<double> rates;
  std::optional<double> latency_us;
  for (const Calibration::Transfer& t : nearest_ranks(transfers, ranks)) {
    if (t.bytes >= large_bytes) rates.push_back(1e-3 * t.bytes / t.us * bus_factor(t.collective, t.ranks));
    const double us = t.us / steps_of(t.collective, t.ranks);
    latency_us = std::min(us, latency_us.value_or(us));
  }
  if (!rates.empty()) {
    link.gbs = median(std::move(rates));
    link.share = 1;
  }
  if (latency_us) link.latency_us = *latency_us;
}

}  // namespace

Cluster calibrated(Cluster cluster, const Calibration& calibration, DType dtype) {
  std::vector<Calibration::Kernel> kernels;
  std::ranges::copy_if(calibration.kernels, std::back_inserter(kernels),
                       [&](const Calibration::Kernel& kernel) { return kernel.dtype == dtype; });
  TRIREME_CHECK(
      !kernels.empty() || calibration.kernels.empty(), ConfigError,
      "the calibration has kernels in {} and none in {}: measure those by kernels_calibration, or plan a run in "
      "{}",
      name_of(calibration.kernels.front().dtype), name_of(dtype), name_of(calibration.kernels.front().dtype));
  set_kernels(cluster.device, kernels, cluster.ranks_per_node);
  set_shares(cluster.device, calibration.shares);
  std::vector<Calibration::Transfer> inside, across;
  for (const Calibration::Transfer& t : calibration.transfers) {
    if (t.ranks > 1) (t.nodes == 1 ? inside : across).push_back(t);
  }
  set_link(cluster.node, inside, cluster.ranks_per_node);
  set_link(cluster.network, across, cluster.ranks_per_node);
  return cluster;
}

}  // namespace trireme::plan
