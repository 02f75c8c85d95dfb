#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"

namespace trireme::selftest {

/// Allowed rounding errors of a kernel's result.
enum class Precision {
  exact,    ///< no error: counts, copies
  rounded,  ///< sums and functions in the accumulation type, then one rounding
  mixed     ///< the same with intermediate factors rounded to the training type
};

/// Result of a kernel, in fp64, for comparison.
struct Outcome {
  std::vector<double> values;
  DType stored = DType::fp32;
  Precision precision = Precision::rounded;
  std::string digest;  ///< digest of its bytes
};

/// One run of a case on one backend. Generates the inputs, identical in every run of a case, and keeps the outcomes.
/// Inputs are rounded to the type under test and stored in the backend's compute type.
class Trial {
 public:
  /// `tested` is the type whose numbers the inputs are, `computed` the type of this run's tensors: the same, or fp64
  /// for a reference.
  Trial(Backend& backend, DType tested, DType computed) : b(backend), tested_(tested), type(computed) {}

  /// Numbers uniform in [-scale, scale), of the training type.
  TensorView input(const Shape& shape, double scale = 1) { return uniform(shape, -scale, scale, tested_, type); }
  /// Numbers uniform in [low, high), of the accumulation type.
  TensorView wide_input(const Shape& shape, double low, double high) {
    return uniform(shape, low, high, accumulation_type(tested_), wide_type());
  }
  /// Integers in [0, limit).
  TensorView integers(const Shape& shape, std::int64_t limit);
  /// Numbers of the samples of a micro-batch, for dropout.
  const std::int64_t* samples(std::int64_t batch);
  /// Length of every sample of a micro-batch: 1 to `max_length`.
  const std::int32_t* lengths(std::int64_t batch, std::int64_t max_length);
  /// First position of the document of every position and sample, [positions, batch], in three documents or more.
  const std::int32_t* document_starts(std::int64_t positions, std::int64_t batch);
  /// Returns an overwritten result, initially NaN.
  TensorView output(const Shape& shape) { return filled(type, shape, std::numeric_limits<double>::quiet_NaN()); }
  TensorView wide_output(const Shape& shape) {
    return filled(wide_type(), shape, std::numeric_limits<double>::quiet_NaN());
  }
  /// Returns a result of one fp64 that is accumulated.
  TensorView sum() { return filled(DType::fp64, {1}, 0); }
  /// Rounds a result to the type under test if this run computes in another.
  void round(TensorView tensor);

  /// Keeps the content of a result.
  void take(ConstTensorView tensor, Precision precision = Precision::rounded);
  const std::vector<Outcome>& outcomes() const { return outcomes_; }

  DType wide_type() const { return accumulation_type(type); }
  Stream& stream() { return b.compute_stream(); }

  Backend& b;

 private:
  TensorView uniform(const Shape& shape, double low, double high, DType rounded, DType stored);
  TensorView filled(DType dtype, const Shape& shape, double value);
  TensorView upload(DType dtype, const Shape& shape, const std::vector<double>& values);
  template <class T>
  const T* upload_integers(const std::vector<T>& values);

  DType tested_;
  std::uint64_t inputs_ = 0;
  std::deque<Tensor> tensors_;
  std::vector<Outcome> outcomes_;

 public:
  const DType type;
};

/// One use of a kernel: makes inputs, runs it, and takes its results.
struct Case {
  std::string name;  ///< with the extents
  std::function<void(Trial&)> run;
};

/// Extents of a small transformer, to which all cases belong.
struct Extents {
  std::int64_t s = 0, b = 0, h = 0, heads = 0, kv_heads = 0, d = 0, f = 0, v = 0;
  std::int64_t rows() const { return s * b; }
};

/// Products in FP8 to test.
struct Fp8Cases {
  bool whole = false;   ///< with one scale for a tensor
  bool blocks = false;  ///< with scales of blocks
};

/// Cases of each family.
std::vector<Case> gemm_cases(const Extents& e);
std::vector<Case> fp8_cases(const Fp8Cases& tested);
std::vector<Case> norm_cases(const Extents& e);
std::vector<Case> attention_cases(const Extents& e);
/// Attention of the sizes for which there are products of warp groups.
std::vector<Case> warp_group_cases();
std::vector<Case> elementwise_cases(const Extents& e);
std::vector<Case> embedding_cases(const Extents& e);
std::vector<Case> cross_entropy_cases(const Extents& e);
std::vector<Case> optimizer_cases(const Extents& e);
std::vector<Case> reduce_cases(const Extents& e);
std::vector<Case> rotary_cases(const Extents& e);
std::vector<Case> expert_cases(const Extents& e);

}  // namespace trireme::selftest
