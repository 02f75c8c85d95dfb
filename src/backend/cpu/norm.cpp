#include "src/backend/kernels/norm.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/backend/cpu/column_sums.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/dropout_mask.hpp"
#include "src/backend/cpu/rows.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cpu {
namespace {

/// Rows per task of the forward kernels.
constexpr std::int64_t row_grain = 16;

// The loops over a row are separate functions: a pointer captured by reference prevents good vectorisation. Statistics
// are summed in fp64: their rounding errors would shift and scale the entire row, in every layer.

/// 1 / sqrt(mean of (x - centre)^2 + epsilon) of one row.
template <class A>
A reciprocal_deviation(const A* x, A centre, A epsilon, std::int64_t h) {
  double squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t j = 0; j < h; ++j) {
    const double difference = static_cast<double>(x[j]) - centre;
    squares += difference * difference;
  }
  return static_cast<A>(1 / std::sqrt(squares / static_cast<double>(h) + epsilon));
}

/// y = (x - mean) rstd weight + bias for one row.
template <class A>
void layer_norm(const A* x, const A* weight, const A* bias, A epsilon, std::int64_t h, A* y, A& mean, A& rstd) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < h; ++j) sum += x[j];
  const A average = static_cast<A>(sum / static_cast<double>(h));
  const A reciprocal = reciprocal_deviation(x, average, epsilon, h);
#pragma omp simd
  for (std::int64_t j = 0; j < h; ++j) y[j] = (x[j] - average) * reciprocal * weight[j] + bias[j];
  mean = average;
  rstd = reciprocal;
}

/// y = x rstd weight for one row.
template <class A>
void rms_norm(const A* x, const A* weight, A epsilon, std::int64_t h, A* y, A& rstd) {
  const A reciprocal = reciprocal_deviation(x, A{0}, epsilon, h);
#pragma omp simd
  for (std::int64_t j = 0; j < h; ++j) y[j] = x[j] * reciprocal * weight[j];
  rstd = reciprocal;
}

/// For one row: dx = (residual_gradient or 0) + the gradient through the normalisation, dweight [h] += its own.
/// LayerNorm is centred, and dbias follows dweight; RMSNorm has neither mean nor bias.
template <bool centred, class A>
void norm_backward(const A* dy, const A* x, const A* weight, A mean, A rstd, const A* residual_gradient, std::int64_t h,
                   A* dx, A* dweight) {
  A* dbias = dweight + h;
  A sum = 0, dot = 0;  // sum of g = dy weight; product of g and the normalised x
  const auto normalised = [&](std::int64_t j) { return (centred ? x[j] - mean : x[j]) * rstd; };
#pragma omp simd reduction(+ : sum, dot)
  for (std::int64_t j = 0; j < h; ++j) {
    const A g = dy[j] * weight[j];
    dot += g * normalised(j);
    dweight[j] += dy[j] * normalised(j);
    if constexpr (centred) {
      sum += g;
      dbias[j] += dy[j];
    }
  }
  sum /= static_cast<A>(h);
  dot /= static_cast<A>(h);
  const auto gradient = [&](std::int64_t j) {
    const A g = dy[j] * weight[j];
    return rstd * ((centred ? g - sum : g) - normalised(j) * dot);
  };
  if (residual_gradient != nullptr) {
#pragma omp simd
    for (std::int64_t j = 0; j < h; ++j) dx[j] = residual_gradient[j] + gradient(j);
  } else {
#pragma omp simd
    for (std::int64_t j = 0; j < h; ++j) dx[j] = gradient(j);
  }
}

/// The factors of a normalisation in the accumulation type: already in memory, or converted to `buffer`.
template <class T>
const Accumulation<T>* factors(const NormWeight& weight, Accumulation<T>* buffer) {
  const std::int64_t h = weight.values.numel();
  const Accumulation<T>* values = row_in(weight.values.as<T>(), h, buffer);
  if (weight.offset == 0) return values;
  const auto offset = static_cast<Accumulation<T>>(weight.offset);
  for (std::int64_t j = 0; j < h; ++j) buffer[j] = values[j] + offset;
  return buffer;
}

/// sum = residual + (x + bias) factor for one row.
template <class A>
void add_row(const A* residual, const A* x, const A* bias, const A* factor, std::int64_t h, A* sum) {
#pragma omp simd
  for (std::int64_t j = 0; j < h; ++j) sum[j] = residual[j] + (x[j] + bias[j]) * factor[j];
}

class CpuNorm final : public NormKernels {
 public:
  explicit CpuNorm(ThreadPool& pool) : pool_(pool) {}

  void normalise(Stream&, ConstTensorView x, const NormWeight& weight, ConstTensorView bias, double epsilon,
                 TensorView y, NormStatistics statistics) override {
    check_normalise(x, weight.values, bias, y, statistics);
    dispatch_float(x.dtype(), [&]<class T, class A>() {
      const std::int64_t h = weight.values.numel();
      const RowNorm<T> norm(weight, bias, epsilon, statistics);
      const T* in = x.as<T>();
      T* out = y.as<T>();
      pool_.parallel_ranges(x.numel() / h, row_grain, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(2 * h);
        for (std::int64_t i = begin; i < end; ++i) {
          A* row = row_out(out + i * h, buffer.data() + h);
          norm(i, row_in(in + i * h, h, buffer.data()), row);
          finish_row(row, h, out + i * h);
        }
      });
    });
  }

  void normalise_backward(Stream&, ConstTensorView dy, ConstTensorView x, const NormWeight& weight,
                          NormStatistics statistics, ConstTensorView residual_gradient, TensorView dx,
                          TensorView dweight, TensorView dbias) override {
    check_normalise_backward(dy, x, weight.values, statistics, residual_gradient, dx, dweight, dbias);
    dispatch_float(x.dtype(), [&]<class T, class A>() {
      const std::int64_t h = weight.values.numel();
      const std::int64_t rows = x.numel() / h;
      std::vector<A> weight_buffer(h);
      const A* w = factors<T>(weight, weight_buffer.data());
      const T* out_gradient = dy.as<T>();
      const T* in = x.as<T>();
      const T* residual = residual_gradient ? residual_gradient.as<T>() : nullptr;
      T* in_gradient = dx.as<T>();
      const A* mean = statistics.mean ? statistics.mean.as<A>() : nullptr;
      const A* rstd = statistics.reciprocal_deviation.as<A>();
      std::vector<A> sums(dbias ? 2 * h : h);  // sums for the gradients of weight and bias
      sum_columns(pool_, scratch_, rows, std::ssize(sums), sums.data(),
                  [&](std::int64_t begin, std::int64_t end, A* dw) {
                    std::vector<A> buffer(4 * h);
                    for (std::int64_t i = begin; i < end; ++i) {
                      const A* dy_row = row_in(out_gradient + i * h, h, buffer.data());
                      const A* x_row = row_in(in + i * h, h, buffer.data() + h);
                      const A* add = residual == nullptr ? nullptr : row_in(residual + i * h, h, buffer.data() + 2 * h);
                      A* dx_row = row_out(in_gradient + i * h, buffer.data() + 3 * h);
                      if (mean != nullptr)
                        norm_backward<true>(dy_row, x_row, w, mean[i], rstd[i], add, h, dx_row, dw);
                      else
                        norm_backward<false>(dy_row, x_row, w, A{0}, rstd[i], add, h, dx_row, dw);
                      finish_row(dx_row, h, in_gradient + i * h);
                    }
                  });
      A* dw = dweight.as<A>();
      for (std::int64_t j = 0; j < h; ++j) dw[j] += sums[j];
      if (!dbias) return;
      A* db = dbias.as<A>();
      for (std::int64_t j = 0; j < h; ++j) db[j] += sums[h + j];
    });
  }

  void bias_dropout_add_norm(Stream&, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                             const Dropout& dropout, const NormWeight& weight, ConstTensorView norm_bias,
                             double epsilon, TensorView sum, TensorView y, NormStatistics statistics) override {
    check_bias_dropout_add_norm(x, bias, residual, dropout, weight.values, norm_bias, sum, y, statistics);
    dispatch_float(x.dtype(), [&]<class T, class A>() {
      const std::int64_t h = weight.values.numel();
      const std::int64_t batch = x.shape()[1];
      const RowNorm<T> norm(weight, norm_bias, epsilon, statistics);
      std::vector<A> added(h);
      if (bias) load_row(bias.as<T>(), h, added.data());
      const T* in = x.as<T>();
      const T* skip = residual.as<T>();
      T* total = sum.as<T>();
      T* out = y.as<T>();
      pool_.parallel_ranges(x.numel() / h, row_grain, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(4 * h);
        A* factor = buffer.data() + 3 * h;
        std::fill_n(factor, h, A{1});
        for (std::int64_t i = begin; i < end; ++i) {
          const A* x_row = row_in(in + i * h, h, buffer.data());
          const A* skip_row = row_in(skip + i * h, h, buffer.data() + h);
          if (dropout.enabled()) {
            dropout_row(dropout, dropout.key, dropout.samples[i % batch], dropout.positions[i / batch], h, factor);
          }
          A* row = row_out(total + i * h, buffer.data() + 2 * h);
          add_row(skip_row, x_row, added.data(), factor, h, row);
          finish_row(row, h, total + i * h);
          A* y_row = row_out(out + i * h, buffer.data() + h);
          norm(i, row_in(total + i * h, h, buffer.data()), y_row);
          finish_row(y_row, h, out + i * h);
        }
      });
    });
  }

 private:
  /// The forward of one row, of either kind, with weight and bias in the accumulation type.
  template <class T>
  struct RowNorm {
    using A = Accumulation<T>;
    RowNorm(const NormWeight& w, ConstTensorView b, double eps, const NormStatistics& statistics)
        : h(w.values.numel()),
          buffer(2 * h),
          weight(factors<T>(w, buffer.data())),
          bias(b ? row_in(b.as<T>(), h, buffer.data() + h) : nullptr),
          epsilon(static_cast<A>(eps)),
          mean(statistics.mean ? statistics.mean.as<A>() : nullptr),
          rstd(statistics.reciprocal_deviation.as<A>()) {}
    void operator()(std::int64_t row, const A* x, A* y) const {
      if (mean != nullptr)
        layer_norm(x, weight, bias, epsilon, h, y, mean[row], rstd[row]);
      else
        rms_norm(x, weight, epsilon, h, y, rstd[row]);
    }
    std::int64_t h;
    std::vector<A> buffer;
    const A* weight;
    const A* bias;
    A epsilon;
    A* mean;
    A* rstd;
  };

  ThreadPool& pool_;
  ScratchPool scratch_;
};

}  // namespace

std::unique_ptr<NormKernels> make_norm(ThreadPool& pool) { return std::make_unique<CpuNorm>(pool); }

}  // namespace trireme::cpu
