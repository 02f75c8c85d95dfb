#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::parallel {

/// Route of tokens to the ranks of their experts.
enum class TokenDispatch {
  all_gather,  ///< every rank of the group gets all tokens, and sums its experts' results with the others'
  all_to_all   ///< a rank gets only the tokens of its experts, and returns their results
};

/// Moves tokens to the ranks that hold their experts, and the results back. n tokens of this rank, k choices of a
/// token, R rows: the choices of all ranks of the group that fall on experts of this rank, by expert, then by rank,
/// then by token. The R rows do not depend on the route, unless they are padded (Room). Neighbours in the group may
/// split experts: each gets all rows of an expert, and the sum of their results is the expert's. Work space tensors are
/// valid until the caller's scope ends.
class TokenDispatcher {
 public:
  /// Rows that each expert has whatever the data: those without a token are 0. The host then reads nothing from the
  /// device. 0: rows of tokens only.
  struct Room {
    std::int64_t of_rank = 0;   ///< at least the tokens of one rank that an expert has
    std::int64_t of_group = 0;  ///< at least those of all ranks
  };
  /// State of one micro-batch between forward and backward.
  struct Saved {
    std::vector<std::int64_t> rows;  ///< by expert of this rank; their sum is R
    TensorView weights;              ///< [choices, k]: row r has the weight at position slots[r]
    TensorView slots;                ///< [R] int32
    TensorView tokens;               ///< all-gather: [R] int32, token among those of all ranks; all-to-all: [n k], sent
    TensorView row_of;               ///< all-gather: [tokens of all ranks, k], all-to-all: [n, k], row among those sent
    TensorView arrivals;             ///< all-to-all: [R] int32, number of each row among those received, by rank
    TensorView departures;           ///< all-to-all: [R] int32, the inverse
    std::vector<std::int64_t> sent;  ///< all-to-all: rows by place of experts, sent to each rank that splits them
    std::vector<std::int64_t> received;  ///< all-to-all: rows by rank of the group
  };

  /// Makes a dispatcher over `group`, which may be null: one rank. All arguments must outlive it. `experts` of the
  /// layer are divided evenly over places of `splits` neighbouring ranks, which split each expert. A rehearsal gives
  /// this rank `load` times its even share of the rows, at most all of them; the other places share the rest.
  static std::unique_ptr<TokenDispatcher> make(TokenDispatch route, Backend& backend, Communicator* group,
                                               Arena& workspace, std::int64_t experts, double load = 1, int splits = 1);
  virtual ~TokenDispatcher() = default;

  /// Assigns rows to the choices `kept` [n, k] int32, -1 for none, with their `weights` [n, k], which must stay valid.
  /// Allocates in `arena`, and without `room` waits for the device. With it only the first call for a size copies from
  /// the host.
  virtual Saved assign(ConstTensorView kept, TensorView weights, Arena& arena, const Room& room) const = 0;
  /// Returns the rows of the experts here, [R, h] in the work space, from `tokens` [n, h]. Calls `meanwhile`, if any,
  /// while the tokens travel.
  TensorView dispatch(const Saved& saved, ConstTensorView tokens, const std::function<void()>& meanwhile = {}) const;
  /// y[t] = sum over the choices of token t, in their order, of its rows on any rank. rows [R, h], y [n, h],
  /// overwritten.
  virtual void combine(const Saved& saved, ConstTensorView rows, TensorView y) const = 0;
  /// Returns the gradients of `weights` [n, k] in the work space, 0 for choices without a row, from those at the
  /// positions `slots` of `of_slots`, which has the shape of Saved::weights and is 0 elsewhere.
  virtual TensorView weight_gradients(const Saved& saved, TensorView of_slots) const = 0;

  /// Number of the first expert here, and of experts here.
  std::int64_t first_expert() const { return local_ * (group_ == nullptr ? 0 : group_->rank() / splits_); }
  std::int64_t local_experts() const { return local_; }

 protected:
  TokenDispatcher(Backend& backend, Communicator* group, Arena& workspace, std::int64_t experts, double load,
                  int splits)
      : backend_(backend),
        group_(group),
        workspace_(workspace),
        experts_(experts),
        splits_(splits),
        local_(experts / places()),
        load_(std::min(load, static_cast<double>(places()))) {}
  /// Tokens on their way into a matrix of the work space, complete after `arrival.wait`.
  struct Transit {
    ConstTensorView tokens;
    Work arrival;
  };
  /// Starts the transfer of `tokens` [n, h] to the ranks of their experts.
  virtual Transit send_tokens(const Saved& saved, ConstTensorView tokens) const = 0;
  /// Writes the rows [R, h] of the experts here, of tokens that have arrived.
  virtual void order_rows(const Saved& saved, ConstTensorView tokens, TensorView rows) const = 0;

  Stream& stream() const { return backend_.compute_stream(); }
  std::int64_t ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  /// Sets of different experts in the group.
  std::int64_t places() const { return ranks() / splits_; }
  /// Reads int32 numbers of rows from the device. A rehearsal copies nothing and gets shares of `all` rows by `load_`,
  /// for experts from `first` on, repeated by rank.
  std::vector<std::int64_t> read_rows(ConstTensorView rows, std::int64_t all, std::int64_t first) const;

  Backend& backend_;
  Communicator* group_;
  Arena& workspace_;
  std::int64_t experts_;
  int splits_;
  std::int64_t local_;
  double load_;
};

}  // namespace trireme::parallel
