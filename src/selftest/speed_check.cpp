#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "src/backend/gpu_health.hpp"
#include "src/base/median.hpp"
#include "src/base/timer.hpp"
#include "src/selftest/check.hpp"
#include "src/selftest/kernels/trial.hpp"

namespace trireme::selftest {
namespace {

// Fractions of a ceiling that a GPU must reach, over `min_share`: 0.6 and 0.4 of it by default. A healthy GPU copies at
// about nine tenths of its memory's bandwidth. Its products reach half or more of the peak at maximum clock, since the
// power limit lowers the clock. A GPU at half of its clock or power falls below both.
constexpr double copy_ceiling_tolerance = 0.75, product_ceiling_tolerance = 0.5;

/// Matrices of a product y = x w^T of [n, n], of random numbers: constants would draw less power.
class Product {
 public:
  explicit Product(Backend& backend, bool quick = false)
      : trial_(backend, type_on(backend), type_on(backend)),
        n_(quick                      ? 256
           : backend.memory_is_host() ? 512
                                      : 4096),
        x_(trial_.input({n_, n_})),
        w_(trial_.input({n_, n_}, 2 / std::sqrt(static_cast<double>(n_)))) {}

  /// Type in which this backend is expected to be fast.
  static DType type_on(const Backend& backend) { return backend.memory_is_host() ? DType::fp32 : DType::bf16; }

  Tensor result() { return {trial_.b, trial_.type, {n_, n_}}; }
  void compute(TensorView y) { trial_.b.gemm().linear(trial_.stream(), x_, w_, {}, Activation::none, {}, y); }
  double operations() const { return 2.0 * static_cast<double>(n_) * static_cast<double>(n_ * n_); }
  std::string text() const { return fmt::format("[{0}, {0}] x {0} {1}", n_, name_of(trial_.type)); }

 private:
  Trial trial_;
  std::int64_t n_;
  TensorView x_, w_;
};

/// Returns the seconds of one call of `work`: the median of seven runs, each with enough calls to take 5 ms.
double seconds_of(Stream& stream, const std::function<void()>& work) {
  const auto seconds = [&](int calls) {
    stream.synchronize();
    const Timer timer;
    for (int i = 0; i < calls; ++i) work();
    stream.synchronize();
    return timer.elapsed_s() / calls;
  };
  seconds(1);  // autotunes the product
  const int calls = std::clamp(static_cast<int>(5e-3 / seconds(1)), 1, 1000);
  std::vector<double> times(7);
  for (double& time : times) time = seconds(calls);
  return median(std::move(times));
}

double copy_seconds(Backend& backend, std::int64_t numel) {
  const DType dtype = Product::type_on(backend);
  const Tensor from(backend, dtype, {numel}), to(backend, dtype, {numel});
  backend.elementwise().fill(backend.compute_stream(), 1, from);
  return seconds_of(backend.compute_stream(),
                    [&] { backend.elementwise().convert(backend.compute_stream(), from, to); });
}

/// Returns the median of one value of the samples; none if the GPU does not report it.
std::optional<double> median_of(const std::vector<GpuLoad>& samples, std::optional<double> GpuLoad::*value) {
  std::vector<double> values;
  for (const GpuLoad& sample : samples) {
    if (sample.*value) values.push_back(*(sample.*value));
  }
  if (values.empty()) return {};
  return median(std::move(values));
}

/// States of this rank's GPU under load, by NVML. Empty on the CPU, or without NVML.
class LoadWatch {
 public:
  explicit LoadWatch(const Context& context) : min_share_(context.min_share) {
    if (!context.pci_address.empty()) monitor_.emplace(context.pci_address, context.nvml);
  }

  /// Samples the state, at most ten times a second. Call it while the GPU is busy.
  void look() {
    constexpr double interval_s = 0.1;
    if (!monitor_ || (since_latest_ && since_latest_->elapsed_s() < interval_s)) return;
    since_latest_.emplace();
    if (const std::optional<GpuLoad> sample = monitor_->read()) samples_.push_back(*sample);
  }

  /// Returns the medians of clocks, which are compared with those of all ranks, and slowdowns.
  std::vector<Result> results() const {
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

 private:
  std::optional<GpuMonitor> monitor_;
  double min_share_;
  std::optional<Timer> since_latest_;
  std::vector<GpuLoad> samples_;
};

/// Differences of products from the first one. Adds the negated first to each. The sum of squares is then 0 only if all
/// elements are equal: differences of unequal numbers of one type do not round to 0.
class Burn {
 public:
  Burn(Backend& backend, Product& product)
      : b_(backend),
        product_(product),
        minus_first_(product.result()),
        y_(product.result()),
        squares_(backend, DType::fp64, {batch}) {
    product_.compute(minus_first_);
    b_.elementwise().scale(b_.compute_stream(), -1, minus_first_);
  }

  static constexpr int batch = 32;  ///< products between two checks of their differences

  /// Computes that many products, and returns the index of the first that differs; -1: none. `watch` samples the device
  /// under load.
  int run(int products, LoadWatch& watch) {
    Stream& stream = b_.compute_stream();
    b_.elementwise().fill(stream, 0, squares_);
    for (int i = 0; i < products; ++i) {
      product_.compute(y_);
      b_.elementwise().add(stream, minus_first_, y_);
      b_.reduce().sum_squares(stream, y_, squares_.view().flat(i, 1));
    }
    watch.look();
    std::vector<double> squares(batch);
    b_.copy_to_host(stream, squares_, TensorView(squares.data(), {batch}));
    stream.synchronize();
    const auto different = std::ranges::find_if(squares, [](double x) { return x != 0; });
    return different == squares.end() ? -1 : static_cast<int>(different - squares.begin());
  }

 private:
  Backend& b_;
  Product& product_;
  Tensor minus_first_, y_, squares_;
};

std::vector<Result> check_speed(Context& context) {
  Backend& backend = context.backend;
  Product product(backend);
  const Tensor y = product.result();
  const double product_rate = product.operations() / seconds_of(backend.compute_stream(), [&] { product.compute(y); });
  const std::int64_t numel = backend.memory_is_host() ? std::int64_t{1} << 22 : std::int64_t{1} << 29;
  const double bytes = 2.0 * static_cast<double>(numel) * static_cast<double>(size_of(Product::type_on(backend)));
  const double copy_rate = bytes / copy_seconds(backend, numel);
  std::vector<Result> results;
  const auto add_rate = [&](const std::string& name, std::string item, double rate, const char* unit, double ceiling,
                            double ceiling_tolerance) {
    const Result result{.check = name + " rate",
                        .item = std::move(item),
                        .kind = Kind::rate,
                        .value = 1e-9 * rate,
                        .unit = unit,
                        .min_share = context.min_share};
    Result share = result;
    share.check = name + " rate of the ceiling";
    share.kind = ceiling > 0 ? Kind::share : Kind::skipped;
    share.expected = 1e-9 * ceiling;
    share.min_share *= ceiling_tolerance;
    share.detail = ceiling > 0 ? "" : "no ceiling is known of " + backend.description();
    results.insert(results.end(), {result, share});
  };
  add_rate("product", product.text(), product_rate, "GFLOP/s", context.ceilings.operations_per_s,
           product_ceiling_tolerance);
  add_rate("copy", fmt::format("{} MiB", static_cast<std::int64_t>(bytes / 2) >> 20), copy_rate, "GB/s",
           context.ceilings.bytes_per_s, copy_ceiling_tolerance);
  return results;
}

std::vector<Result> check_burn(Context& context) {
  Product product(context.backend, context.quick);
  Burn burn(context.backend, product);
  LoadWatch watch(context);
  std::int64_t done = 0, first_wrong = -1, wrong = 0;
  double min_rate = std::numeric_limits<double>::max();
  const Timer timer;
  int products = 1;
  do {
    const Timer since_begin;
    const int different = burn.run(products, watch);
    if (different >= 0) {
      if (wrong++ == 0) first_wrong = done + different + 1;
    }
    done += products;
    if (done > 1) min_rate = std::min(min_rate, products * product.operations() / since_begin.elapsed_s());
    products = since_begin.elapsed_s() / products < 0.2 / Burn::batch ? Burn::batch : 4;
  } while (timer.elapsed_s() < context.burn_seconds);
  const double rate = static_cast<double>(done) * product.operations() / timer.elapsed_s();
  const std::string count = fmt::format("{} products {}", done, product.text());
  std::vector<Result> results = watch.results();
  results.push_back(
      {.check = "burn results",
       .passed = wrong == 0,
       .value = static_cast<double>(wrong),
       .unit = "wrong",
       .detail = wrong == 0 ? count + ", all with the same bits"
                            : fmt::format("repetition {} of {} has other bits than the first", first_wrong, count)});
  results.push_back({.check = "burn rate",
                     .item = product.text(),
                     .kind = Kind::rate,
                     .value = 1e-9 * rate,
                     .unit = "GFLOP/s",
                     .min_share = context.min_share,
                     .detail = done <= 1 ? "" : fmt::format("slowest part {:.0f} % of it", 100 * min_rate / rate)});
  return results;
}

}  // namespace

Check speed_check() { return {"speed", "rates of a copy and of a product", Scope::rank, check_speed}; }

Check burn_check() {
  return {"burn", "products of which every result must have the first one's bits", Scope::rank, check_burn};
}

}  // namespace trireme::selftest
