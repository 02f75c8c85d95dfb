#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::optim {

/// Updates a rank's shard of its parameters (all of them where the buffer is in one shard). Keeps its moments and, for
/// 16-bit training types, fp32 master weights in arrays of the shard. In fp32 and fp64 the parameters are their own
/// masters. Matrices and embeddings decay; biases and norms only with Rates::decays_all. Padding has no gradient and
/// stays 0.
class Optimizer {
 public:
  /// State of one parameter, as a checkpoint names it.
  struct State {
    std::string kind;  ///< "model" for the masters, else a moment: "adamw_m"
    TensorView data;   ///< flat; masters in the accumulation type, moments in their own
  };

  /// Rates of one update. A number alone is the learning rate.
  struct Rates {
    Rates(double rate) : learning_rate(rate) {}
    double learning_rate;
    std::optional<double> weight_decay = {};  ///< instead of the optimizer's
    std::optional<double> of_tokens = {};     ///< learning rate of Parameter::rows_are_tokens
    bool decays_all = false;                  ///< biases and norms decay, too
  };

  virtual ~Optimizer() = default;
  Optimizer& operator=(Optimizer&&) = delete;

  /// Updates the shard from its reduced gradients times `gradient_scale`, bucket by bucket in the order in which a
  /// forward uses them, on `stream`; null: on the compute stream. Calls `updated` after each bucket.
  void step(const Rates& rates, double gradient_scale, const std::function<void(std::size_t)>& updated = {},
            Stream* stream = nullptr);
  /// Returns whether `step` may run on another stream than the one that computes.
  bool runs_beside() const { return is_matrix_ == nullptr; }
  /// Updates done.
  std::int64_t updates() const { return updates_; }

  /// Bytes of master weights and moments on this rank.
  std::size_t bytes() const;
  /// Masters and moments of the range of parameter i in this shard (ParameterBuffer::shard_range).
  std::vector<State> state(std::size_t i) const;
  /// Continues after `updates` updates, from masters and moments written through these views. Rounds the masters to
  /// this shard of the parameters.
  void restore(std::int64_t updates);
  /// Sets the masters to the parameters, after these were initialised.
  void reset_masters();
  /// Masters of this rank's shard of a bucket.
  TensorView masters(std::size_t bucket) const {
    return rounds() ? of_bucket(masters_, bucket) : parameters_.shard_values(bucket);
  }

 protected:
  struct Update {
    UpdateRateTable rates;  ///< by rates_of
    double gradient_scale = 1;
    std::int64_t number = 1;  ///< from 1
    Stream& stream;
  };
  /// Arrays of an update.
  struct Arrays {
    TensorView gradients;
    TensorView masters;
    std::vector<TensorView> moments;  ///< those of the same parameters, in the order of their names
    TensorView rounded;               ///< the parameters; empty if they are their own masters
  };
  /// Returns whether a parameter is updated as a full matrix.
  using MatrixFilter = bool (*)(const parallel::Parameter&);
  /// An array of state in addition to the masters.
  struct MomentSpec {
    const char* name;
    bool of_matrices = false;   ///< state of full matrices; otherwise of all other parameters
    DType dtype = DType::fp32;  ///< bf16, or fp32 for the accumulation type
  };

  /// Keeps one array, 0 at first, for each of `moments`. Without `is_matrix` no parameter is updated as a full matrix.
  /// `parameters` must live longer. Throws ConfigError for a negative `weight_decay`, and for moments of 16 bits in
  /// fp64.
  Optimizer(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay,
            std::span<const MomentSpec> moments, MatrixFilter is_matrix = nullptr);
  Backend& backend() const { return backend_; }
  const parallel::ParameterBuffer& parameters() const { return parameters_; }
  /// This rank's range of parameter i, by itself.
  Arrays arrays_of(std::size_t i) const;
  /// Position of a parameter's rates in Update::rates.
  static std::size_t rates_of(const parallel::Parameter& p) {
    return (p.rows_are_tokens ? 2 : 0) + (parallel::decays(p.role) ? 1 : 0);
  }

 private:
  /// Enqueues the update of ranges of this rank's shard of a bucket: all that are not full matrices. `arrays` has the
  /// moments of all buckets. Zeros between parameters, which belong to ranges, must stay 0.
  virtual void update_ranges(const Update& update, const UpdateRanges& ranges, const Arrays& arrays) = 0;
  /// Enqueues the updates of a bucket's full matrices.
  virtual void update_matrices(const Update&, std::size_t) {}

  /// Elements [begin, begin + count) of this rank's shard of a bucket, which have state from `offset` on.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t offset = 0;
  };
  /// One array, with room for the elements that have this state.
  struct Moment {
    std::string name;
    bool of_matrices = false;
    Tensor array;
    std::vector<std::vector<Range>> ranges;  // by bucket
  };
  UpdateRateTable table_of(const Rates& rates) const;
  bool rounds() const { return static_cast<bool>(masters_.view()); }
  bool is_matrix(const parallel::Parameter& p) const { return is_matrix_ != nullptr && is_matrix_(p); }
  TensorView of_bucket(const Tensor& array, std::size_t bucket) const {
    const parallel::Bucket& bounds = parameters_.layout().buckets()[bucket];
    return array.view().flat(bounds.shard_begin, bounds.shard_size());
  }
  std::vector<std::vector<Range>> ranges_of(bool matrices, std::int64_t& elements) const;
  /// First element of the state of [begin, ...) of a bucket's shard.
  static std::int64_t state_of(const std::vector<Range>& ranges, std::int64_t begin);
  /// Fills updated_.
  void make_tables();
  void update_bucket(std::size_t bucket, const Update& update);

  Backend& backend_;
  parallel::ParameterBuffer& parameters_;
  double weight_decay_;
  MatrixFilter is_matrix_;
  std::vector<Moment> moments_;
  Tensor masters_;                             // empty if the parameters are their own
  std::vector<parallel::RangeTable> updated_;  // ranges of the shard of each bucket, without full matrices
  std::int64_t updates_ = 0;
};

}  // namespace trireme::optim
