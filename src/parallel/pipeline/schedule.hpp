#pragma once

#include <vector>

namespace trireme::parallel {

enum class StepKind {
  forward,
  backward,         ///< both halves at once
  backward_input,   ///< gradient of the input only
  backward_weight,  ///< gradients of the parameters, after backward_input
};

/// One piece of work of one rank: what it does to which micro-batch in which of its chunks.
struct Step {
  StepKind kind = StepKind::forward;
  int chunk = 0;
  int micro_batch = 0;
  friend bool operator==(const Step&, const Step&) = default;
};

enum class ScheduleKind {
  gpipe,                     ///< all forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965)
  one_forward_one_backward,  ///< 1F1B: as few micro-batches in flight as the depth (Narayanan et al. 2021)
};

/// What every rank of a pipeline does, in order. Data flows from chunk c of rank r to chunk c of rank r + 1, and from
/// the last rank to chunk c + 1 of the first; gradients flow back. Pure data: who sends what to whom follows from it.
struct Schedule {
  int stages = 1;
  int chunks = 1;  ///< of each rank
  int micro_batches = 1;
  std::vector<std::vector<Step>> steps;  ///< [rank]
};

/// The schedule of training one batch. In 1F1B rank r begins with min(stages - r - 1, micro-batches) forwards, then
/// does one forward and one backward in turn, then the backwards that are left: at most min(stages - r, micro-batches)
/// micro-batches are in flight.
Schedule make_schedule(ScheduleKind kind, int stages, int micro_batches);

/// Forwards only: evaluation.
Schedule make_forward_schedule(int stages, int micro_batches);

/// What a step hands to another one: the activation a forward makes, or the gradient a backward makes.
struct Message {
  bool is_gradient = false;
  int rank = 0;  ///< of the receiver
  int chunk = 0;
  int micro_batch = 0;
  friend auto operator<=>(const Message&, const Message&) = default;
};

/// The message `step` of `rank` makes; false where it makes none (the last chunk's forward, the first one's backward).
bool message_made(const Schedule& schedule, int rank, const Step& step, Message& message);
/// The message `step` of `rank` needs; false where it needs none.
bool message_needed(const Schedule& schedule, int rank, const Step& step, Message& message);

}  // namespace trireme::parallel
