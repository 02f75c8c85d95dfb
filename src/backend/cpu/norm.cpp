#include "src/backend/kernels/norm.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/cpu/dropout_mask.hpp"
#include "src/backend/cpu/rows.hpp"

namespace trireme::cpu {
namespace {

/// Rows a task of the forward kernels takes.
constexpr std::int64_t row_grain = 16;

/// Rows a task of backward sums the weights' gradients over: at most 64 such blocks, so that their partial sums stay
/// small against the tensors.
std::int64_t backward_block(std::int64_t rows) { return std::max<std::int64_t>(32, (rows + 63) / 64); }

/// y = (x - mean) rstd weight + bias for one row.
template <class A>
void normalise(const A* x, const A* weight, const A* bias, A epsilon, std::int64_t h, A* y, A& mean, A& rstd) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < h; ++j) sum += x[j];
  const A average = sum / static_cast<A>(h);
  A squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t j = 0; j < h; ++j) squares += (x[j] - average) * (x[j] - average);
  const A reciprocal = 1 / std::sqrt(squares / static_cast<A>(h) + epsilon);
#pragma omp simd
  for (std::int64_t j = 0; j < h; ++j) y[j] = (x[j] - average) * reciprocal * weight[j] + bias[j];
  mean = average;
  rstd = reciprocal;
}

class CpuNorm final : public NormKernels {
 public:
  explicit CpuNorm(ThreadPool& pool) : pool_(pool) {}

  void layer_norm(Stream&, ConstTensorView x, ConstTensorView weight, ConstTensorView bias, double epsilon,
                  TensorView y, NormStatistics statistics) override {
    dispatch_float(x.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t h = weight.numel();
      const Parameters<T> parameters(weight, bias);
      const T* in = x.as<T>();
      T* out = y.as<T>();
      A* mean = statistics.mean.as<A>();
      A* rstd = statistics.reciprocal_deviation.as<A>();
      pool_.parallel_ranges(x.numel() / h, row_grain, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(2 * h);
        for (std::int64_t i = begin; i < end; ++i) {
          A* row = row_out(out + i * h, buffer.data() + h);
          normalise(row_in(in + i * h, h, buffer.data()), parameters.weight, parameters.bias, static_cast<A>(epsilon),
                    h, row, mean[i], rstd[i]);
          finish_row(row, h, out + i * h);
        }
      });
    });
  }

  void layer_norm_backward(Stream&, ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                           NormStatistics statistics, ConstTensorView residual_gradient, TensorView dx,
                           TensorView dweight, TensorView dbias) override {
    dispatch_float(x.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t h = weight.numel();
      const std::int64_t rows = x.numel() / h;
      const std::int64_t block = backward_block(rows);
      const std::int64_t blocks = (rows + block - 1) / block;
      const Parameters<T> parameters(weight, weight);
      const A* w = parameters.weight;
      const T* out_gradient = dy.as<T>();
      const T* in = x.as<T>();
      const T* residual = residual_gradient ? residual_gradient.as<T>() : nullptr;
      T* in_gradient = dx.as<T>();
      const A* mean = statistics.mean.as<A>();
      const A* rstd = statistics.reciprocal_deviation.as<A>();
      std::vector<A> partials(2 * blocks * h);
      pool_.parallel_for(blocks, [&](std::int64_t b) {
        std::vector<A> buffer(4 * h);
        A* dw = partials.data() + 2 * b * h;
        A* db = dw + h;
        for (std::int64_t i = b * block; i < std::min(rows, (b + 1) * block); ++i) {
          const A* dy_row = row_in(out_gradient + i * h, h, buffer.data());
          const A* x_row = row_in(in + i * h, h, buffer.data() + h);
          const A m = mean[i], r = rstd[i];
          A sum = 0, dot = 0;  // of g = dy weight, and of g with the normalised x
#pragma omp simd reduction(+ : sum, dot)
          for (std::int64_t j = 0; j < h; ++j) {
            const A normalised = (x_row[j] - m) * r;
            const A g = dy_row[j] * w[j];
            sum += g;
            dot += g * normalised;
            dw[j] += dy_row[j] * normalised;
            db[j] += dy_row[j];
          }
          sum /= static_cast<A>(h);
          dot /= static_cast<A>(h);
          A* dx_row = row_out(in_gradient + i * h, buffer.data() + 3 * h);
          if (residual != nullptr) {
            const A* add = row_in(residual + i * h, h, buffer.data() + 2 * h);
#pragma omp simd
            for (std::int64_t j = 0; j < h; ++j) {
              dx_row[j] = add[j] + r * (dy_row[j] * w[j] - sum - (x_row[j] - m) * r * dot);
            }
          } else {
#pragma omp simd
            for (std::int64_t j = 0; j < h; ++j) {
              dx_row[j] = r * (dy_row[j] * w[j] - sum - (x_row[j] - m) * r * dot);
            }
          }
          finish_row(dx_row, h, in_gradient + i * h);
        }
      });
      A* dw = dweight.as<A>();
      A* db = dbias.as<A>();
      pool_.parallel_ranges(h, 256, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t b = 0; b < blocks; ++b) {
          const A* partial = partials.data() + 2 * b * h;
          for (std::int64_t j = begin; j < end; ++j) dw[j] += partial[j];
          for (std::int64_t j = begin; j < end; ++j) db[j] += partial[h + j];
        }
      });
    });
  }

  void bias_dropout_add_norm(Stream&, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                             const Dropout& dropout, ConstTensorView weight, ConstTensorView norm_bias, double epsilon,
                             TensorView sum, TensorView y, NormStatistics statistics) override {
    dispatch_float(x.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      const std::int64_t h = weight.numel();
      const std::int64_t batch = x.shape()[1];
      const Parameters<T> parameters(weight, norm_bias);
      std::vector<A> added(h);
      load_row(bias.as<T>(), h, added.data());
      const T* in = x.as<T>();
      const T* skip = residual.as<T>();
      T* total = sum.as<T>();
      T* out = y.as<T>();
      A* mean = statistics.mean.as<A>();
      A* rstd = statistics.reciprocal_deviation.as<A>();
      pool_.parallel_ranges(x.numel() / h, row_grain, [&](std::int64_t begin, std::int64_t end) {
        std::vector<A> buffer(4 * h);
        A* factor = buffer.data() + 3 * h;
        std::fill_n(factor, h, A{1});
        for (std::int64_t i = begin; i < end; ++i) {
          const A* x_row = row_in(in + i * h, h, buffer.data());
          const A* skip_row = row_in(skip + i * h, h, buffer.data() + h);
          if (dropout.enabled()) {
            dropout_row(dropout, dropout.key, dropout.samples[i % batch], dropout.first_row + i / batch, h, factor);
          }
          A* row = row_out(total + i * h, buffer.data() + 2 * h);
#pragma omp simd
          for (std::int64_t j = 0; j < h; ++j) row[j] = skip_row[j] + (x_row[j] + added[j]) * factor[j];
          finish_row(row, h, total + i * h);
          A* y_row = row_out(out + i * h, buffer.data() + h);
          normalise(row_in(total + i * h, h, buffer.data()), parameters.weight, parameters.bias,
                    static_cast<A>(epsilon), h, y_row, mean[i], rstd[i]);
          finish_row(y_row, h, out + i * h);
        }
      });
    });
  }

 private:
  /// Weight and bias in the accumulation type.
  template <class T>
  struct Parameters {
    Parameters(ConstTensorView w, ConstTensorView b)
        : buffer(2 * w.numel()),
          weight(row_in(w.as<T>(), w.numel(), buffer.data())),
          bias(row_in(b.as<T>(), b.numel(), buffer.data() + w.numel())) {}
    std::vector<Accumulation<T>> buffer;
    const Accumulation<T>* weight;
    const Accumulation<T>* bias;
  };

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<NormKernels> make_norm(ThreadPool& pool) { return std::make_unique<CpuNorm>(pool); }

}  // namespace trireme::cpu
