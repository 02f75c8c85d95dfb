#pragma once

#include <optional>
#include <vector>

namespace trireme::parallel {

enum class StepKind {
  forward,
  backward,         ///< both halves at once
  backward_input,   ///< gradient of the input only
  backward_weight,  ///< gradients of the parameters, after backward_input
};

/// Name of a kind in messages and traces: "backward input".
const char* name_of(StepKind kind);

/// One piece of work of one rank on one micro-batch in one of its chunks.
struct Step {
  StepKind kind = StepKind::forward;
  int chunk = 0;
  int micro_batch = 0;
  friend bool operator==(const Step&, const Step&) = default;
};

enum class ScheduleKind {
  gpipe,                     ///< all forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965)
  one_forward_one_backward,  ///< 1F1B: as few micro-batches in flight as the depth (Narayanan et al. 2021)
  interleaved,               ///< 1F1B of several chunks a rank (Narayanan et al. 2021, arXiv:2104.04473)
  zero_bubble,               ///< ZB-H1: 1F1B with a backward in halves (Qi et al. 2023, arXiv:2401.10241)
};

/// Name of a kind, as users give it.
const char* name_of(ScheduleKind kind);

/// Steps of every rank of a pipeline, in order. Data flows from chunk c of rank r to chunk c of rank r + 1, and from
/// the last rank to chunk c + 1 of the first; gradients flow back. The schedule is pure data: senders and receivers
/// follow from it.
struct Schedule {
  int stages = 1;
  int chunks = 1;  ///< chunks of each rank
  int micro_batches = 1;
  std::vector<std::vector<Step>> steps;  ///< [rank]
};

/// The schedule of training one batch on `stages` ranks of `chunks` chunks each. ConfigError if a kind other than
/// `interleaved` needs several chunks. The steps of one kind in a chunk keep the order of the micro-batches. With p
/// stages, v chunks and m micro-batches:
///
/// * GPipe: m forwards, then m backwards; m micro-batches in flight.
/// * 1F1B: rank r begins with min(p - r - 1, m) forwards, then does one forward and one backward in turn, then the
///   backwards that are left; min(p - r, m) in flight.
/// * Interleaved: chunks take turns, each with p micro-batches; forwards go through the chunks upwards, backwards
///   downwards. Rank r begins with w = min(2 (p - r - 1) + (v - 1) p, m v) forwards, and min(w + 1, m v) chunks are in
///   flight at most. Where p does not divide m, the last turns keep the order of full turns. Closing the gaps would
///   deadlock for p > 3.
/// * Zero-bubble: forwards and backwards of inputs as in 1F1B. A micro-batch's backward of the weights follows r
///   backwards later. min(p, m) micro-batches in flight on every rank, as many as 1F1B has on its first.
Schedule make_schedule(ScheduleKind kind, int stages, int micro_batches, int chunks = 1);

/// Forwards only, in the same order: evaluation and generation.
Schedule make_forward_schedule(int stages, int micro_batches, int chunks = 1);

/// Maximum of the micro-batches of all chunks that are after their forward and before the end of their backward.
int max_in_flight(const std::vector<Step>& steps);

/// Message between two steps: the activation of a forward, or the gradient of a backward.
struct Message {
  bool is_gradient = false;
  int rank = 0;  ///< rank of the receiver
  int chunk = 0;
  int micro_batch = 0;
  friend auto operator<=>(const Message&, const Message&) = default;
};

/// Message that `step` of `rank` sends. The last chunk's forward and the first one's backward send none.
std::optional<Message> message_made(const Schedule& schedule, int rank, const Step& step);
/// Message that `step` of `rank` needs, if any.
std::optional<Message> message_needed(const Schedule& schedule, int rank, const Step& step);

}  // namespace trireme::parallel
