#include "src/plan/cluster/measured_kernels.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/check.hpp"

namespace trireme::plan {
namespace {

std::vector<double> place_of(const MeasuredKernel& call) {
  std::vector<double> place;
  for (const double extent : call.shape) place.push_back(std::log2(extent));
  place.push_back(std::log2(call.work));
  return place;
}

double square_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

}  // namespace

MeasuredKernel measured_form(const KernelCall& call) {
  MeasuredKernel form{std::string(name_of(call.kind)), {call.bytes}, call.bytes};
  const auto set_shape = [&](std::int64_t a, std::int64_t b, std::int64_t c) {
    form.shape = {static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)};
    form.work = call.flops();
  };
  if (call.product) set_shape(call.product->m, call.product->n, call.product->k);
  if (call.attention) set_shape(call.attention->queries, call.attention->keys, call.attention->head_dim);
  return form;
}

MeasuredKernels::MeasuredKernels(const std::vector<MeasuredKernel>& kernels) {
  for (const MeasuredKernel& k : kernels) {
    const bool positive = std::ranges::all_of(k.shape, [](double extent) { return extent > 0; });
    TRIREME_CHECK(positive && k.work > 0 && k.us > 0, ShapeError,
                  "a measurement of {} has extents, work or time that are not positive", k.kernel);
    std::vector<Rate>& rates = rates_[k.kernel];
    TRIREME_CHECK(rates.empty() || rates.front().place.size() == k.shape.size() + 1, ShapeError,
                  "measurements of {} have shapes of {} and of {} extents", k.kernel, rates.front().place.size() - 1,
                  k.shape.size());
    rates.push_back({place_of(k), std::log(k.work / k.us)});
  }
}

std::optional<double> MeasuredKernels::time_us(const MeasuredKernel& call) const {
  const auto found = rates_.find(call.kernel);
  if (found == rates_.end()) return std::nullopt;
  if (call.work <= 0) return 0;
  const std::vector<double> place = place_of(call);
  TRIREME_CHECK(place.size() == found->second.front().place.size(), ShapeError, "{} is measured by {} extents, not {}",
                call.kernel, found->second.front().place.size() - 1, call.shape.size());
  constexpr double same_shape = 1e-12;  // square distance at which other shapes no longer count
  double weights = 0, sum = 0;
  for (const Rate& rate : found->second) {
    const double square = std::max(square_distance(rate.place, place), same_shape);
    const double weight = 1 / (square * square);
    weights += weight;
    sum += weight * rate.log_rate;
  }
  return call.work / std::exp(sum / weights);
}

}  // namespace trireme::plan
