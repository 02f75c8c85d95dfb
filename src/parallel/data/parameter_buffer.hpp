#pragma once

#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/parallel/parameter.hpp"

namespace trireme::parallel {

/// All parameters of one rank in two arenas, values in the training type and main gradients in its accumulation type,
/// in one order: whatever works on all of them (clearing, reducing, updating) runs over one array. Each parameter
/// begins at a multiple of 64 bytes of values; what lies between is zero and stays zero.
class ParameterBuffer {
 public:
  /// Lays out `parameters` (their `storage` is read, their `value` and `gradient` are set) in the order given. Both
  /// arrays are zero at first.
  ParameterBuffer(Backend& backend, DType dtype, std::vector<Parameter> parameters);

  /// Elements of each of the two arrays for these parameters.
  static std::int64_t elements(DType dtype, const std::vector<Parameter>& parameters);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// The parameter called `name`, which must be there.
  const Parameter& at(const std::string& name) const;
  /// First element of parameter i in both arrays.
  std::int64_t offset(std::size_t i) const { return offsets_[i]; }
  TensorView values() const { return values_; }
  TensorView gradients() const { return gradients_; }

  /// Sets all gradients to 0.
  void clear_gradients(Backend& backend);
  /// Sums the gradients that are partial over the tensor group, in one message.
  void sum_partial_gradients(Backend& backend, Communicator& tensor_group, Arena& workspace);
  /// gradients = sum over `data_group`.
  void reduce_gradients(Backend& backend, Communicator& data_group);

 private:
  std::vector<Parameter> parameters_;
  std::vector<std::int64_t> offsets_;
  Tensor values_;
  Tensor gradients_;
};

}  // namespace trireme::parallel
