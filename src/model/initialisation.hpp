#pragma once

#include <cstdint>
#include <span>

#include "src/backend/backend.hpp"
#include "src/parallel/parameter.hpp"

namespace trireme::model {

enum class InitMethod { normal, hashed_uniform };

struct Initialisation {
  InitMethod method = InitMethod::normal;
  std::uint64_t seed = 1234;
  int layers = 1;               ///< layers of the full model
  double scale = 1;             ///< multiplies the layers' matrices (h.*), to test attention and activations
  double std = 0.02;            ///< standard deviation of `normal`
  int threads = 1;              ///< threads of this rank; they do not affect the values
  bool scales_residual = true;  ///< divides residual matrices by sqrt(2 layers)
  /// Neighbouring experts with the same row of the router, that of their number in a router with a row for each.
  std::int64_t router_repeats = 1;
};

/// Writes initial values to the parameters. Element i (row-major in the full, logical tensor) of the tensor NAME
/// depends only on the seed, NAME and i, so every grid starts from the same model. Leaves storage outside a parameter's
/// box unchanged.
///
/// `normal`: matrices and embeddings N(0, std), residual matrices N(0, std / sqrt(2 layers)), biases 0, norm weights 1
/// (0 if stored as the difference from 1). The normal deviate is Wichura's AS 241 inverse (Applied Statistics 37, 1988)
/// of a 53-bit uniform: words 2 (i % 2) and 2 (i % 2) + 1 of Philox with key mix64(mix64(seed) + fnv1a(NAME)) and
/// counter i / 2; computed in fp64.
///
/// `hashed_uniform`: r = (k - 2^23) / 2^23 with k the upper 24 bits of splitmix64(fnv1a(NAME), i); matrices and
/// embeddings a r, residual matrices a r / sqrt(2 layers), a = 0.02 sqrt(3); biases 0.02 r; norm weights 1 + 0.1 r
/// (0.1 r if stored as the difference from 1); norm biases 0.05 r. Rounds constants, products and sums to fp32 in every
/// training type, so that other programs can reproduce the weights without a file. Ignores the seed.
///
/// Adapters, with both methods: A is uniform on (-1 / sqrt(in), 1 / sqrt(in)), as in PEFT; from the same 53 bits, or
/// r / sqrt(in). B is 0, or 0.02 r.
///
/// Without `scales_residual`, residual matrices are not divided by sqrt(2 layers).
void initialise(Backend& backend, std::span<const parallel::Parameter> parameters, const Initialisation& options);

/// Returns one element of `initialise`, before conversion to the training type; not of an adapter.
double initial_value(const std::string& name, parallel::ParameterRole role, std::int64_t index,
                     const Initialisation& options);

/// Inverse of the standard normal distribution function for 0 < p < 1, with a relative error of about 1e-16 (AS 241,
/// PPND16).
double normal_quantile(double p);

}  // namespace trireme::model
