#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/optim/streamed_state.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::optim {

/// State kept in host memory: that of the first buckets, which the next forward uses last.
struct Offload {
  double fraction = 0;                                  ///< share of the elements, rounded up to buckets
  std::int64_t piece_elements = std::int64_t{1} << 23;  ///< copied at a time; a multiple of RangeTable::unit
};

/// Updates a rank's shard of its parameters (all of them where the buffer is in one shard). Keeps its moments and, for
/// 16-bit training types, fp32 master weights in arrays of the shard. In fp32 and fp64 the parameters are their own
/// masters. Matrices and embeddings decay; biases and norms only with Rates::decays_all. Padding has no gradient and
/// stays 0.
class Optimizer {
 public:
  /// State of one parameter, as a checkpoint names it.
  struct State {
    std::string kind;  ///< "model" for the masters, else a moment: "adamw_m"
    TensorView data;   ///< flat; masters in the accumulation type, or frozen in the training type, moments in their own
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

  /// Updates the shard from its reduced gradients times `gradient_scale`: all full matrices, then bucket by bucket in
  /// the order in which a forward uses them, on `stream`; null: on the compute stream. Calls `updated` after each
  /// bucket. A `factor` in device memory (AdamWStep) replaces `gradient_scale`, except for full matrices.
  void step(const Rates& rates, double gradient_scale, const std::function<void(std::size_t)>& updated = {},
            Stream* stream = nullptr, const double* factor = nullptr);
  /// Uncounts the latest step, which the device did not make: its factor was NaN.
  void take_back() { --updates_; }
  /// Returns whether `step` needs no number on the host: it may be enqueued before its factor is known, and run on
  /// another stream than the one that computes.
  bool runs_beside() const { return is_matrix_ == nullptr; }
  /// Updates done.
  std::int64_t updates() const { return updates_; }

  /// Bytes of master weights and moments on this rank: on the device, with pieces that are streamed through it, and in
  /// host memory.
  std::size_t bytes() const;
  std::size_t host_bytes() const;
  /// Masters and moments of the range of parameter i in this shard (ParameterBuffer::shard_range), some of them in host
  /// memory.
  std::vector<State> state(std::size_t i) const;
  /// Continues after `updates` updates, from masters and moments written through these views. Rounds the masters to
  /// this shard of the parameters.
  void restore(std::int64_t updates);
  /// Sets the masters to the parameters, after these were initialised. With state in host memory it waits: the host may
  /// write there afterwards.
  void reset_masters();
  /// Masters of this rank's shard of a bucket.
  TensorView masters(std::size_t bucket) const {
    return rounds() ? masters_.of(bounds_of(bucket)) : parameters_.shard_values(bucket);
  }

 protected:
  struct Update {
    UpdateRateTable rates;  ///< by rates_of
    double gradient_scale = 1;
    std::int64_t number = 1;  ///< from 1
    Stream& stream;
    const double* factor = nullptr;
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
  /// fp64. State of full matrices is on the device.
  Optimizer(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay,
            std::span<const MomentSpec> moments, const Offload& offload, MatrixFilter is_matrix = nullptr);
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
  /// Enqueues the updates of all full matrices. May overwrite their gradients.
  virtual void update_matrices(const Update&) {}

  /// Elements [begin, begin + count) of this rank's shard of a bucket, which have state from `offset` on.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t offset = 0;
  };
  /// An array whose first elements are in host memory, the rest on the device.
  class Array {
   public:
    Array() = default;
    /// All elements are 0.
    Array(Backend& backend, DType dtype, std::int64_t elements, std::int64_t on_host);
    /// Elements [begin, begin + count), all on one side.
    TensorView flat(std::int64_t begin, std::int64_t count) const {
      return begin < on_host_ ? host_.view().flat(begin, count) : device_.view().flat(begin - on_host_, count);
    }
    TensorView of(const parallel::Bucket& bucket) const { return flat(bucket.shard_begin, bucket.shard_size()); }
    DType dtype() const { return device_.view() ? device_.view().dtype() : host_.view().dtype(); }
    const Tensor& device() const { return device_; }
    const Tensor& host() const { return host_; }
    explicit operator bool() const { return device_.view() || host_.view(); }

   private:
    Tensor host_, device_;
    std::int64_t on_host_ = 0;
  };
  /// One array, with room for the elements that have this state.
  struct Moment {
    std::string name;
    bool of_matrices = false;
    Array array;
    std::vector<std::vector<Range>> ranges;  // by bucket
  };
  /// Elements [begin, begin + count) of this rank's shard of a bucket, updated by one call.
  struct Piece {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    parallel::RangeTable updated = {};  // its ranges without full matrices, from `begin` on
  };
  UpdateRateTable table_of(const Rates& rates) const;
  bool rounds() const { return static_cast<bool>(masters_); }
  const parallel::Bucket& bounds_of(std::size_t bucket) const { return parameters_.layout().buckets()[bucket]; }
  bool is_on_host(std::size_t bucket) const { return bounds_of(bucket).shard_begin < on_host_; }
  bool is_matrix(const parallel::Parameter& p) const { return is_matrix_ != nullptr && is_matrix_(p); }
  std::vector<std::vector<Range>> ranges_of(bool matrices, std::int64_t& elements) const;
  /// First element of the state of [begin, ...) of a bucket's shard.
  static std::int64_t state_of(const std::vector<Range>& ranges, std::int64_t begin);
  /// Elements of the first buckets that hold a fraction of all.
  std::int64_t elements_of(double fraction) const;
  /// Fills pieces_.
  void make_tables(std::int64_t piece_elements);
  void update_piece(std::size_t bucket, const Piece& piece, const Update& update);

  Backend& backend_;
  parallel::ParameterBuffer& parameters_;
  double weight_decay_;
  MatrixFilter is_matrix_;
  std::vector<Moment> moments_;
  std::int64_t on_host_;                    // elements of the first buckets, whose state is in host memory
  Array masters_;                           // empty if the parameters are their own
  std::vector<std::vector<Piece>> pieces_;  // by bucket
  std::optional<StreamedState> host_;       // without state in host memory empty
  std::int64_t updates_ = 0;
};

}  // namespace trireme::optim
