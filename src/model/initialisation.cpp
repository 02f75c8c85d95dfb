#include "src/model/initialisation.hpp"

#include <array>
#include <cmath>
#include <vector>

#include "src/base/hash.hpp"
#include "src/base/philox.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::model {
namespace {

using parallel::Parameter;
using parallel::ParameterRole;

/// c[0] + c[1] x + ... + c[7] x^7
double polynomial(const std::array<double, 8>& c, double x) {
  double sum = c[7];
  for (int i = 6; i >= 0; --i) sum = sum * x + c[static_cast<std::size_t>(i)];
  return sum;
}

/// Initial values of one tensor, by index.
class InitialValues {
 public:
  InitialValues(const std::string& name, ParameterRole role, std::int64_t columns, const Initialisation& options)
      : method_(options.method), role_(role), hash_(fnv1a(name)), key_(mix64(mix64(options.seed) + hash_)) {
    const bool hashed = method_ == InitMethod::hashed_uniform;
    factor_ = hashed ? 0.02 * std::sqrt(3.0) : options.std;
    if (role == ParameterRole::residual_matrix && options.scales_residual) factor_ /= std::sqrt(2.0 * options.layers);
    scale_ = name.starts_with("h.") ? options.scale : 1;
    if (role == ParameterRole::adapter_inputs) bound_ = 1 / std::sqrt(static_cast<double>(columns));
  }

  double operator()(std::int64_t index) {
    return method_ == InitMethod::normal ? normal(index) : static_cast<double>(hashed_uniform(index));
  }

 private:
  float hashed_uniform(std::int64_t index) const {
    const std::uint64_t k = splitmix64(hash_, static_cast<std::uint64_t>(index)) >> 40;
    const float r = static_cast<float>(static_cast<std::int64_t>(k) - (1 << 23)) / 8388608.0f;
    switch (role_) {
      case ParameterRole::embedding:
      case ParameterRole::matrix:
      case ParameterRole::residual_matrix:
      case ParameterRole::output_matrix:
        return static_cast<float>(factor_) * r * static_cast<float>(scale_);
      case ParameterRole::bias:
        return 0.02f * r;
      case ParameterRole::norm_weight:
        return 1.0f + 0.1f * r;
      case ParameterRole::centred_norm_weight:
        return 0.1f * r;
      case ParameterRole::norm_bias:
        return 0.05f * r;
      case ParameterRole::adapter_inputs:
        return static_cast<float>(bound_) * r;
      case ParameterRole::adapter_outputs:
        return 0.02f * r;
    }
    return 0;
  }

  double normal(std::int64_t index) {
    if (role_ == ParameterRole::norm_weight) return 1;
    if (role_ == ParameterRole::bias || role_ == ParameterRole::norm_bias ||
        role_ == ParameterRole::centred_norm_weight || role_ == ParameterRole::adapter_outputs) {
      return 0;
    }
    if (const std::int64_t call = index / 2; call != call_) {
      call_ = call;
      words_ = philox4x32(key_, {static_cast<std::uint32_t>(call), static_cast<std::uint32_t>(call >> 32), 0, 0});
    }
    const std::size_t half = index % 2 == 0 ? 0 : 2;
    const std::uint64_t bits = (std::uint64_t{words_[half]} << 32 | words_[half + 1]) >> 11;
    const double uniform = (static_cast<double>(bits) + 0.5) / 9007199254740992.0;
    if (role_ == ParameterRole::adapter_inputs) return bound_ * (2 * uniform - 1);
    return factor_ * scale_ * normal_quantile(uniform);
  }

  InitMethod method_;
  ParameterRole role_;
  std::uint64_t hash_;
  std::uint64_t key_;
  double factor_;  // factor of the uniform number, or standard deviation
  double scale_;
  double bound_ = 0;        // bound of the uniform numbers of adapter_inputs
  std::int64_t call_ = -1;  // the last call of Philox, which serves two elements
  std::array<std::uint32_t, 4> words_{};
};

/// Returns the index in the full tensor of the first element of an innermost row of the box.
std::int64_t first_index(const Parameter& parameter, std::int64_t row) {
  const Shape& whole = parameter.shape;
  const Box& box = parameter.box;
  const int last = whole.rank() - 1;
  std::int64_t index = box.offset[last];
  std::int64_t stride = whole[last];
  for (int dimension = last - 1; dimension >= 0; --dimension) {
    index += (box.offset[dimension] + row % box.extent[dimension]) * stride;
    row /= box.extent[dimension];
    stride *= whole[dimension];
  }
  return index;
}

}  // namespace

double normal_quantile(double p) {
  constexpr std::array<double, 8> a = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                       1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                       3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr std::array<double, 8> b = {1.0,
                                       4.2313330701600911252e+1,
                                       6.8718700749205790830e+2,
                                       5.3941960214247511077e+3,
                                       2.1213794301586595867e+4,
                                       3.9307895800092710610e+4,
                                       2.8729085735721942674e+4,
                                       5.2264952788528545610e+3};
  constexpr std::array<double, 8> c = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                       3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                       2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr std::array<double, 8> d = {1.0,
                                       2.05319162663775882187e0,
                                       1.67638483018380384940e0,
                                       6.89767334985100004550e-1,
                                       1.48103976427480074590e-1,
                                       1.51986665636164571966e-2,
                                       5.47593808499534494600e-4,
                                       1.05075007164441684324e-9};
  constexpr std::array<double, 8> e = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                       2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                       2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr std::array<double, 8> f = {1.0,
                                       5.99832206555887937690e-1,
                                       1.36929880922735805310e-1,
                                       1.48753612908506148525e-2,
                                       7.86869131145613259100e-4,
                                       1.84631831751005468180e-5,
                                       1.42151175831644588870e-7,
                                       2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  const double tail =
      r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5) / polynomial(f, r - 5);
  return q < 0 ? -tail : tail;
}

double initial_value(const std::string& name, ParameterRole role, std::int64_t index, const Initialisation& options) {
  return InitialValues(name, role, 1, options)(index);
}

void initialise(Backend& backend, std::span<const Parameter> parameters, const Initialisation& options) {
  ThreadPool pool(options.threads);
  for (const Parameter& parameter : parameters) {
    if (parameter.box.numel() == 0) continue;
    dispatch_float(parameter.value.dtype(), [&]<class T>() {
      std::vector<T> values(static_cast<std::size_t>(parameter.box.numel()));
      const std::int64_t row_size = parameter.box.extent.back();
      const std::int64_t rows = parameter.box.numel() / row_size;
      const std::int64_t repeats = parameter.name.ends_with(".router.weight") ? options.router_repeats : 1;
      constexpr std::int64_t wanted_elements = 1 << 14;
      pool.parallel_ranges(rows, (wanted_elements + row_size - 1) / row_size,
                           [&](std::int64_t begin, std::int64_t end) {
                             InitialValues initial(parameter.name, parameter.role, parameter.shape.back(), options);
                             for (std::int64_t row = begin; row < end; ++row) {
                               const std::int64_t first = first_index(parameter, row / repeats);
                               for (std::int64_t i = 0; i < row_size; ++i) {
                                 const double value = initial(first + i);
                                 // Rounds to fp32 first, so that 16-bit weights are rounded from their fp32 masters.
                                 values[static_cast<std::size_t>(row * row_size + i)] =
                                     std::is_same_v<T, double> ? T(value) : T(static_cast<float>(value));
                               }
                             }
                           });
      const Shape flat{parameter.box.numel()};
      backend.copy_from_host(backend.compute_stream(), ConstTensorView(values.data(), flat),
                             parameter.value.flat(0, parameter.box.numel()));
      backend.compute_stream().synchronize();
    });
  }
}

}  // namespace trireme::model
