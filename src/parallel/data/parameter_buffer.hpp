#pragma once

#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"
#include "src/parallel/data/buffer_layout.hpp"
#include "src/parallel/data/range_table.hpp"

namespace trireme::parallel {

/// State that the ranks of a data group, which hold the same parameters, keep in shards (Rajbhandari et al. 2019,
/// arXiv:1910.02054).
enum class DataSharding {
  none,                     ///< every rank keeps all: gradients are all-reduced
  optimizer,                ///< master weights and moments (ZeRO 1): reduce-scatter, update of the shard, all-gather
  optimizer_and_gradients,  ///< main gradients too (ZeRO 2): reduced after every micro-batch's backward of a unit
};

struct DataParallelOptions {
  DataSharding sharding = DataSharding::none;
  bool low_precision_gradients = false;  ///< 16-bit training types: main gradients in the training type
  bool overlap_reduce = false;           ///< buckets are reduced while backward runs
  bool overlap_gather = false;           ///< parameters are gathered while the next forward runs
  std::int64_t bucket_elements = 0;      ///< 0: max(40 M, 1 M x data ranks) with an overlap, all in one without
  bool overlap_update = true;            ///< parameters are updated while the next forward runs

  /// Returns whether a forward may run beside the update before it: without overlap_gather it waits for all shards.
  bool updates_beside_forward() const { return overlap_update && (overlap_gather || sharding == DataSharding::none); }
};

/// A rank's communicators for parameters whose gradients are reduced over the same ranks. Every rank lists the same
/// groups in the same order (Parameter::gradient_group), even if it has no parameter of one. The communicators must
/// outlive the list's users.
struct GradientGroup {
  Communicator& gradient;  ///< ranks with the same parameters: reduces gradients, shards state
  Communicator& tensor;    ///< ranks that split the parameters
  Communicator& model;     ///< ranks of one replica of all parameters of the group
};

/// A rank's place among those that hold the same parameters.
struct GradientGroupMember {
  int ranks = 1;
  int rank = 0;
};

/// Throws ConfigError if `options` are not supported with training in `dtype`.
void validate(const DataParallelOptions& options, DType dtype);

/// All parameters of one rank and their main gradients, in the layout of BufferLayout. Clearing, reducing and updating
/// run over long arrays. With N elements, d shards, A the accumulation type:
///
///   values            N, training type, and the frozen parameters, which have nothing else.
///   main gradients    N in A; with low_precision_gradients N in the training type, and N / d in A for their sum;
///                     in ZeRO 2 N / d in A.
///   work              with low-precision gradients or ZeRO 2: fp32 memory (A) in which layers add up gradients. Units
///                     use it in turn, in a separate part for each gradient group. A unit with an embedding has its
///                     own, because a tied table gets gradients at both ends of the backward.
///
/// Padding between parameters is zero and stays zero.
class ParameterBuffer {
 public:
  /// Lays out `parameters`: their `storage` is read, their `value` and `gradient` are set. All elements start at zero.
  /// `members` are by gradient group. `memory` is for all arrays; null: the backend's.
  ParameterBuffer(Backend& backend, DType dtype, std::vector<Parameter> parameters,
                  const DataParallelOptions& options = {},
                  const std::vector<GradientGroupMember>& members = {GradientGroupMember{}},
                  Allocator* memory = nullptr);

  static BufferLayout make_layout(DType dtype, const std::vector<Parameter>& parameters,
                                  const DataParallelOptions& options, const std::vector<GradientGroupMember>& members);
  /// Bytes of the arrays.
  struct Memory {
    std::size_t values = 0;
    std::size_t gradients = 0;
    std::size_t work = 0;
  };
  Memory memory() const {
    return {values_.view().size_bytes(), gradients_.view().size_bytes() + shard_gradients_.view().size_bytes(),
            work_.view().size_bytes()};
  }

  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// The parameter called `name`; ShapeError if this rank has none.
  const Parameter& at(const std::string& name) const;
  /// The parameter called `name`, or null if this rank has none.
  const Parameter* find(const std::string& name) const;
  const DataParallelOptions& options() const { return options_; }
  const BufferLayout& layout() const { return layout_; }
  /// Returns whether ranks keep shards of state.
  bool is_sharded() const { return options_.sharding != DataSharding::none; }

  TensorView values() const { return values_; }
  /// Main gradients of all parameters that are trained; empty in ZeRO 2.
  TensorView gradients() const { return gradients_; }
  /// Returns whether layers add gradients to work memory instead of the main gradients.
  bool has_work() const { return static_cast<bool>(work_.view()); }
  /// Memory in which layers add up the gradients of a unit's parameters of one gradient group, and in which those of a
  /// bucket are reduced.
  TensorView unit_gradients(std::size_t gradient_group, std::size_t unit) const;
  TensorView bucket_gradients(std::size_t bucket) const;
  TensorView bucket_values(std::size_t bucket) const;

  /// This rank's shard of a bucket's values, and its gradients in A, which are complete after the reduction.
  TensorView shard_values(std::size_t bucket) const { return own_shard(bucket, bucket_values(bucket)); }
  TensorView shard_gradients(std::size_t bucket) const;
  /// This rank's shard of `values`, which are bucket_gradients or bucket_values.
  TensorView own_shard(std::size_t bucket, TensorView values) const;
  /// Range of parameter i in this rank's shard, and its gradient, which has no elements if it is frozen.
  ShardRange shard_range(std::size_t i) const {
    return layout_.shard_range(i, parameters_[i].stored_numel(), shard_of(layout_.home_of(i)));
  }
  TensorView shard_gradient(std::size_t i) const;
  /// Calls function(kind, begin, count) for ranges of this rank's shard of a bucket, in the order of memory. Parameters
  /// of one range have the same kind(const Parameter&), so that a kernel runs over many at once. The zeros between
  /// neighbours are part of a range.
  template <class Kind, class Function>
  void for_each_stretch(std::size_t bucket, const Kind& kind, const Function& function) const;

  /// Begins the gradients of an update: sets them to 0, except for those that are deferred (GradientSums).
  void clear_gradients(Backend& backend);
  /// Sets those of a bucket to 0 that are still undefined: of layers and experts that did not compute.
  void complete_gradients(Backend& backend, std::size_t bucket);
  /// States of the main gradients. Those summed in work memory are never deferred.
  GradientSums& sums() const { return *sums_; }
  /// Sums the shard's gradients that are partial over the tensor ranks, in one message for each of `groups`.
  void sum_partial_gradients(Backend& backend, std::span<const GradientGroup> groups, Arena& workspace);

 private:
  int shard_of(const Bucket& bucket) const { return shards_[static_cast<std::size_t>(bucket.gradient_group)]; }
  std::size_t group_of(std::size_t i) const { return static_cast<std::size_t>(parameters_[i].gradient_group); }
  std::size_t unit_of(std::size_t i) const { return static_cast<std::size_t>(parameters_[i].unit); }
  /// Sets the first element of each unit's work memory. Returns the total of elements.
  std::int64_t place_work();
  /// The ranges of the main gradients that are not deferred.
  RangeTable cleared_ranges() const;

  std::vector<Parameter> parameters_;
  DataParallelOptions options_;
  BufferLayout layout_;
  std::vector<int> shards_;                              // this rank's, by gradient group
  std::vector<std::vector<std::int64_t>> work_offsets_;  // by gradient group and unit
  Tensor values_;
  Tensor gradients_;
  Tensor shard_gradients_;
  Tensor work_;
  std::unique_ptr<GradientSums> sums_;  // at a fixed address
  std::optional<RangeTable> cleared_;   // made at the first update
};

template <class Kind, class Function>
void ParameterBuffer::for_each_stretch(std::size_t bucket, const Kind& kind, const Function& function) const {
  using Value = std::decay_t<decltype(kind(parameters_.front()))>;
  Value of_stretch{};
  std::int64_t begin = 0, end = 0;
  for (const std::size_t i : layout_.buckets()[bucket].parameters) {
    const ShardRange own = shard_range(i);
    if (own.count == 0) continue;
    const Value of_parameter = kind(parameters_[i]);
    if (begin == end || of_parameter != of_stretch) {
      if (begin != end) function(of_stretch, begin, end - begin);
      begin = own.at;
      of_stretch = of_parameter;
    }
    end = own.at + own.count;
  }
  if (begin != end) function(of_stretch, begin, end - begin);
}

}  // namespace trireme::parallel
