#include "src/parallel/pipeline/executor.hpp"

#include <algorithm>

namespace trireme::parallel {
namespace {

// Steps for which receives are posted ahead: a forward and a backward in steady state.
constexpr std::size_t steps_ahead = 2;

// On a GPU what runs for the first time loads kernels, takes memory, is recorded as a graph, and for any of this CUDA
// may wait until the GPU has nothing to do. A receive under way whose message depends on what the host enqueues next
// would never let it. So many runs of a schedule see to all of it.
constexpr int runs_without_receives_ahead = 3;

}  // namespace

Tensor* PipelineExecutor::take_buffer() {
  // Sends that are done give their buffers back first.
  for (auto departure = departures_.begin(); departure != departures_.end();) {
    const auto next = std::next(departure);
    if (departure->second.work.done()) finish(departure);
    departure = next;
  }
  if (free_.empty()) {
    buffers_.emplace_back(backend_, stage_.boundary_dtype(), stage_.boundary_shape());
    free_.push_back(&buffers_.back());
  }
  Tensor* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void PipelineExecutor::finish(std::map<Message, Departure>::iterator departure) {
  departure->second.work.wait(backend_.compute_stream());
  give_buffer(departure->second.buffer);
  departures_.erase(departure);
}

std::size_t PipelineExecutor::buffer_bytes() const {
  std::size_t sum = 0;
  for (const Tensor& buffer : buffers_) sum += buffer.view().size_bytes();
  return sum;
}

bool PipelineExecutor::sends_parts() const {
  return options_.tensor_group != nullptr && options_.tensor_group->size() > 1 &&
         stage_.boundary_shape().numel() % options_.tensor_group->size() == 0;
}

TensorView PipelineExecutor::own_part(TensorView whole) const {
  if (!sends_parts()) return whole;
  const std::int64_t numel = whole.numel() / options_.tensor_group->size();
  return whole.flat(options_.tensor_group->rank() * numel, numel);
}

ConstTensorView PipelineExecutor::receive(const Schedule& schedule, const Step& step) {
  Message message;
  if (!message_needed(schedule, group_.rank(), step, message)) return {};
  Arrival& arrival = arrivals_.at(message);
  {
    const TraceScope scope(trace_, message.is_gradient ? "wait for gradient" : "wait for activation", "communication",
                           message.chunk, message.micro_batch);
    arrival.work.wait(backend_.compute_stream());
    if (arrival.in_parts) {
      Stream& stream = backend_.compute_stream();
      const TensorView whole = arrival.buffer->view().flat(0, arrival.buffer->view().numel());
      options_.tensor_group->all_gather(stream, own_part(whole), whole).wait(stream);
    }
  }
  if (message.is_gradient) {
    // Who made the gradient has received the activation.
    Message activation;
    message_made(schedule, group_.rank(), {StepKind::forward, step.chunk, step.micro_batch}, activation);
    if (const auto sent = departures_.find(activation); sent != departures_.end()) finish(sent);
  }
  return arrival.buffer->view();
}

Tensor* PipelineExecutor::output_of(const Schedule& schedule, const Step& step) {
  Message message;
  if (!message_made(schedule, group_.rank(), step, message)) return nullptr;
  // Where everything goes one way nothing comes back to hold a sender that runs ahead; there it may wait.
  if (!has_backward_ && schedule.chunks == 1) {
    while (departures_.size() > 1) finish(departures_.begin());
  }
  return take_buffer();
}

void PipelineExecutor::run_step(const Step& step, ConstTensorView input, TensorView output) {
  const TraceScope scope(trace_, name_of(step.kind), "pipeline", step.chunk, step.micro_batch);
  switch (step.kind) {
    case StepKind::forward:
      stage_.forward(step.chunk, step.micro_batch, input, output);
      break;
    case StepKind::backward:
      stage_.backward(step.chunk, step.micro_batch, input, output);
      break;
    case StepKind::backward_input:
      stage_.backward_input(step.chunk, step.micro_batch, input, output);
      break;
    case StepKind::backward_weight:
      stage_.backward_weight(step.chunk, step.micro_batch);
      break;
  }
}

void PipelineExecutor::forget(const Message& message) {
  const auto found = arrivals_.find(message);
  if (found == arrivals_.end()) return;
  give_buffer(found->second.buffer);
  arrivals_.erase(found);
}

void PipelineExecutor::add_receives(const Schedule& schedule, const Step& step, Exchange& exchange) {
  Message message;
  if (!message_needed(schedule, group_.rank(), step, message) || arrivals_.contains(message)) return;
  for (std::size_t peer = 0; peer < incoming_.size(); ++peer) {
    const auto& sent = incoming_[peer];
    const auto wanted = std::find(sent.begin() + static_cast<std::ptrdiff_t>(posted_[peer]), sent.end(), message);
    if (wanted == sent.end()) continue;
    while (posted_[peer] <= static_cast<std::size_t>(wanted - sent.begin())) {
      Arrival& arrival = arrivals_[sent[posted_[peer]++]];
      arrival.buffer = take_buffer();
      arrival.in_parts = sends_parts();
      exchange.transfers.push_back(
          {Transfer::Direction::receive, static_cast<int>(peer), own_part(arrival.buffer->view())});
      exchange.works.push_back(&arrival.work);
    }
  }
}

void PipelineExecutor::add_send(const Schedule& schedule, const Step& step, Tensor* output, Exchange& exchange) {
  Message message;
  message_made(schedule, group_.rank(), step, message);
  if (message.rank == group_.rank()) {
    arrivals_[message].buffer = output;  // the next chunk is on this rank, too
    return;
  }
  Departure& departure = departures_[message];
  departure.buffer = output;
  exchange.transfers.push_back({Transfer::Direction::send, message.rank, own_part(output->view())});
  exchange.works.push_back(&departure.work);
}

void PipelineExecutor::start(Exchange& exchange) {
  if (exchange.transfers.empty()) return;
  std::vector<Work> works = group_.exchange(backend_.compute_stream(), exchange.transfers);
  for (std::size_t i = 0; i < works.size(); ++i) *exchange.works[i] = std::move(works[i]);
  exchange = {};
}

void PipelineExecutor::run(const Schedule& schedule) {
  const int rank = group_.rank();
  TRIREME_CHECK(schedule.stages == group_.size(), ShapeError, "a schedule of {} stages on a pipeline of {}",
                schedule.stages, group_.size());
  const std::vector<Step>& steps = schedule.steps[static_cast<std::size_t>(rank)];
  incoming_.assign(static_cast<std::size_t>(schedule.stages), {});
  posted_.assign(static_cast<std::size_t>(schedule.stages), 0);
  has_backward_ = false;
  for (int peer = 0; peer < schedule.stages; ++peer) {
    for (const Step& step : schedule.steps[static_cast<std::size_t>(peer)]) {
      Message message;
      has_backward_ = has_backward_ || step.kind != StepKind::forward;
      if (peer != rank && message_made(schedule, peer, step, message) && message.rank == rank) {
        incoming_[static_cast<std::size_t>(peer)].push_back(message);
      }
    }
  }

  const int earlier_runs = runs_[{has_backward_, steps.size()}]++;
  const bool ahead = options_.overlap && (backend_.memory_is_host() || earlier_runs >= runs_without_receives_ahead);
  Exchange exchange;
  if (!steps.empty()) add_receives(schedule, steps.front(), exchange);
  start(exchange);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (ahead) {
      for (std::size_t next = i + 1; next < std::min(i + 1 + steps_ahead, steps.size()); ++next) {
        add_receives(schedule, steps[next], exchange);
      }
      start(exchange);
    }
    const ConstTensorView input = receive(schedule, step);
    Tensor* output = output_of(schedule, step);
    run_step(step, input, output != nullptr ? output->view() : TensorView());
    // The stage reads what it received until the last work on the micro-batch is done, or no longer than in forward.
    if (step.kind == StepKind::forward && !stage_.reads_input_in_backward(step.chunk)) {
      forget({false, rank, step.chunk, step.micro_batch});
    }
    if (step.kind == StepKind::backward || step.kind == StepKind::backward_weight || !has_backward_) {
      forget({false, rank, step.chunk, step.micro_batch});
      forget({true, rank, step.chunk, step.micro_batch});
    }
    if (i + 1 < steps.size() && !ahead) add_receives(schedule, steps[i + 1], exchange);
    if (output != nullptr) add_send(schedule, step, output, exchange);
    start(exchange);
  }
  while (!departures_.empty()) finish(departures_.begin());
}

}  // namespace trireme::parallel
