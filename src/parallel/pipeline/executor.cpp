#include "src/parallel/pipeline/executor.hpp"

#include <algorithm>
#include <utility>

namespace trireme::parallel {
namespace {

// Steps for which receives are posted ahead: a forward and a backward in steady state.
constexpr std::size_t steps_ahead = 2;

// The first runs of a schedule on a GPU take memory and record graphs, and the first step of a shape loads kernels.
// Each of these may make CUDA wait for an idle GPU. A GPU is never idle while a receive waits for a message that
// depends on later work of this host. So no receive is posted ahead of such steps.
constexpr int runs_without_receives_ahead = 3;

}  // namespace

void run_step(Stage& stage, const Step& step, ConstTensorView input, TensorView output) {
  switch (step.kind) {
    case StepKind::forward:
      return stage.forward(step.chunk, step.micro_batch, input, output);
    case StepKind::backward:
      return stage.backward(step.chunk, step.micro_batch, input, output);
    case StepKind::backward_input:
      return stage.backward_input(step.chunk, step.micro_batch, input, output);
    case StepKind::backward_weight:
      return stage.backward_weight(step.chunk, step.micro_batch);
  }
}

Tensor* PipelineExecutor::acquire_buffer() {
  if (free_.empty()) free_.push_back(&buffers_.emplace_back());
  Tensor* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void PipelineExecutor::finish(std::map<Message, Departure>::iterator departure) {
  if (!rehearses_) departure->second.work.wait(backend_.compute_stream());
  release_buffer(departure->second.buffer);
  departures_.erase(departure);
}

std::size_t PipelineExecutor::buffer_bytes() const {
  std::size_t sum = 0;
  for (const Tensor& buffer : buffers_) sum += buffer.view().size_bytes();
  return sum;
}

TensorView PipelineExecutor::message_in(const Tensor& buffer, int micro_batch) const {
  if (rehearses_) return {};
  const Shape shape = stage_.boundary_shape(micro_batch);
  return buffer.view().flat(0, shape.numel()).reshape(shape);
}

bool PipelineExecutor::sends_shards(std::int64_t numel) const {
  return options_.tensor_group != nullptr && options_.tensor_group->size() > 1 &&
         numel % options_.tensor_group->size() == 0;
}

TensorView PipelineExecutor::own_shard(TensorView whole) const {
  if (!sends_shards(whole.numel())) return whole;
  const std::int64_t numel = whole.numel() / options_.tensor_group->size();
  return whole.flat(options_.tensor_group->rank() * numel, numel);
}

ConstTensorView PipelineExecutor::receive(const Schedule& schedule, const Step& step) {
  const std::optional<Message> message = message_needed(schedule, group_.rank(), step);
  if (!message) return {};
  Arrival& arrival = arrivals_.at(*message);
  const TensorView received = message_in(*arrival.buffer, message->micro_batch);
  if (!rehearses_) {
    const TraceScope scope(trace_, message->is_gradient ? "wait for gradient" : "wait for activation", "communication",
                           message->chunk, message->micro_batch);
    arrival.work.wait(backend_.compute_stream());
    if (arrival.is_shard) {
      Stream& stream = backend_.compute_stream();
      const TensorView whole = received.flat(0, received.numel());
      options_.tensor_group->all_gather(stream, own_shard(whole), whole).wait(stream);
    }
  }
  finish_received(schedule, *message);
  return received;
}

void PipelineExecutor::finish_received(const Schedule& schedule, const Message& arrived) {
  const auto origin = origins_.find(arrived);
  if (origin == origins_.end()) return;
  const auto [peer, last] = origin->second;
  const std::vector<Step>& steps = schedule.steps[static_cast<std::size_t>(peer)];
  std::size_t& next = received_steps_[static_cast<std::size_t>(peer)];
  for (; next <= last; ++next) {
    const std::optional<Message> needed = message_needed(schedule, peer, steps[next]);
    if (!needed) continue;
    if (const auto sent = departures_.find(*needed); sent != departures_.end()) finish(sent);
  }
}

Tensor* PipelineExecutor::output_of(const Schedule& schedule, const Step& step) {
  if (!message_made(schedule, group_.rank(), step)) return nullptr;
  // Without backwards, few messages return that prove receipts, so the sender waits. This cannot deadlock: the next
  // rank gets all its messages from this one, in this order.
  while (!has_backward_ && departures_.size() > 1) {
    finish(std::ranges::min_element(departures_, {}, [](const auto& sent) { return sent.second.number; }));
  }
  return acquire_buffer();
}

void PipelineExecutor::release_message(const Message& message) {
  const auto found = arrivals_.find(message);
  if (found == arrivals_.end()) return;
  release_buffer(found->second.buffer);
  arrivals_.erase(found);
}

PipelineExecutor::StepShape PipelineExecutor::shape_of(const Step& step) const {
  return {has_backward_, step.kind, step.chunk, to_string(stage_.boundary_shape(step.micro_batch))};
}

bool PipelineExecutor::needs_no_idle_gpu(const Step& step) const {
  return rehearses_ || backend_.memory_is_host() || (is_repeated_ && shapes_run_.contains(shape_of(step)));
}

void PipelineExecutor::add_receives(const Schedule& schedule, const Step& step, bool ahead, Exchange& exchange) {
  const std::optional<Message> message = message_needed(schedule, group_.rank(), step);
  if (!message || arrivals_.contains(*message)) return;
  for (std::size_t peer = 0; peer < incoming_.size(); ++peer) {
    const auto& sent = incoming_[peer];
    const auto first = sent.begin() + static_cast<std::ptrdiff_t>(posted_[peer]);
    const auto awaited = std::find(first, sent.end(), *message);
    if (awaited == sent.end()) continue;
    // Streams of a GPU may share a queue, where a receive that waits for its predecessor blocks all later work. So a
    // receive posted ahead follows only messages that no later step needs.
    if (ahead && (awaited != first || posted_[peer] != taken_[peer])) continue;
    while (posted_[peer] <= static_cast<std::size_t>(awaited - sent.begin())) {
      const int number = sent[posted_[peer]].micro_batch;
      Arrival& arrival = arrivals_[sent[posted_[peer]++]];
      arrival.buffer = acquire_buffer();
      if (rehearses_) continue;
      const TensorView whole = message_in(*arrival.buffer, number);
      arrival.is_shard = sends_shards(whole.numel());
      exchange.transfers.push_back({Transfer::Direction::receive, static_cast<int>(peer), own_shard(whole)});
      exchange.works.push_back(&arrival.work);
    }
  }
}

void PipelineExecutor::add_send(const Schedule& schedule, const Step& step, Tensor* output, Exchange& exchange) {
  const Message message = message_made(schedule, group_.rank(), step).value();
  if (message.rank == group_.rank()) {
    arrivals_[message].buffer = output;  // the next chunk is on this rank, too
    return;
  }
  Departure& departure = departures_[message];
  departure.buffer = output;
  departure.number = sent_++;
  if (rehearses_) return;
  const TensorView whole = message_in(*output, message.micro_batch);
  exchange.transfers.push_back({Transfer::Direction::send, message.rank, own_shard(whole)});
  exchange.works.push_back(&departure.work);
}

void PipelineExecutor::start(Exchange& exchange) {
  if (exchange.transfers.empty()) return;
  std::vector<Work> works = group_.exchange(backend_.compute_stream(), exchange.transfers);
  for (std::size_t i = 0; i < works.size(); ++i) *exchange.works[i] = std::move(works[i]);
  exchange = {};
}

void PipelineExecutor::run(const Schedule& schedule, std::function<void()> before_backward) {
  const int rank = group_.rank();
  TRIREME_CHECK(schedule.stages == group_.size(), ShapeError, "a schedule of {} stages on a pipeline of {}",
                schedule.stages, group_.size());
  incoming_.assign(static_cast<std::size_t>(schedule.stages), {});
  origins_.clear();
  has_backward_ = false;
  for (int peer = 0; peer < schedule.stages; ++peer) {
    const std::vector<Step>& made = schedule.steps[static_cast<std::size_t>(peer)];
    for (std::size_t i = 0; i < made.size(); ++i) {
      has_backward_ = has_backward_ || made[i].kind != StepKind::forward;
      const std::optional<Message> message = message_made(schedule, peer, made[i]);
      if (peer != rank && message && message->rank == rank) {
        incoming_[static_cast<std::size_t>(peer)].push_back(*message);
        origins_[*message] = {peer, i};
      }
    }
  }

  const int earlier_runs = runs_[{has_backward_, schedule.steps[static_cast<std::size_t>(rank)].size()}]++;
  is_repeated_ = earlier_runs >= runs_without_receives_ahead && !stage_.may_need_idle_gpu();
  if (earlier_runs == 0) {
    rehearses_ = true;  // with all receives posted ahead, which takes the most buffers
    walk(schedule);
    rehearses_ = false;
  }
  std::int64_t longest = 0;
  for (int i = 0; i < schedule.micro_batches; ++i) {
    longest = std::max(longest, stage_.boundary_shape(i).numel());
  }
  for (Tensor& buffer : buffers_) {
    if (buffer.view() && buffer.view().numel() >= longest) continue;
    buffer = Tensor();  // frees the shorter one first
    buffer = Tensor(backend_, stage_.boundary_dtype(), {longest});
  }
  before_backward_ = std::move(before_backward);
  walk(schedule);
  before_backward_ = {};
}

void PipelineExecutor::walk(const Schedule& schedule) {
  const int rank = group_.rank();
  const std::vector<Step>& steps = schedule.steps[static_cast<std::size_t>(rank)];
  posted_.assign(incoming_.size(), 0);
  taken_.assign(incoming_.size(), 0);
  received_steps_.assign(incoming_.size(), 0);
  Exchange exchange;
  if (!steps.empty()) add_receives(schedule, steps.front(), false, exchange);
  start(exchange);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (const auto needed = message_needed(schedule, rank, step); needed && origins_.contains(*needed)) {
      ++taken_[static_cast<std::size_t>(origins_.at(*needed).first)];
    }
    for (std::size_t next = i + 1; options_.overlap && next < std::min(i + 1 + steps_ahead, steps.size()); ++next) {
      if (!needs_no_idle_gpu(steps[next - 1])) break;  // it runs while the receive is in flight
      add_receives(schedule, steps[next], true, exchange);
    }
    start(exchange);
    if (before_backward_ && step.kind != StepKind::forward) std::exchange(before_backward_, {})();
    const ConstTensorView input = receive(schedule, step);
    Tensor* output = output_of(schedule, step);
    if (!rehearses_) {
      const TraceScope scope(trace_, name_of(step.kind), "pipeline", step.chunk, step.micro_batch);
      run_step(stage_, step, input, output != nullptr ? message_in(*output, step.micro_batch) : TensorView());
      shapes_run_.insert(shape_of(step));
    }
    // The stage reads its input until the last step of the micro-batch, or in forward only.
    if (step.kind == StepKind::forward && !stage_.reads_input_in_backward(step.chunk)) {
      release_message({false, rank, step.chunk, step.micro_batch});
    }
    if (step.kind == StepKind::backward || step.kind == StepKind::backward_weight || !has_backward_) {
      release_message({false, rank, step.chunk, step.micro_batch});
      release_message({true, rank, step.chunk, step.micro_batch});
    }
    if (i + 1 < steps.size()) add_receives(schedule, steps[i + 1], false, exchange);
    if (output != nullptr) add_send(schedule, step, output, exchange);
    start(exchange);
  }
  while (!departures_.empty()) finish(departures_.begin());
}

}  // namespace trireme::parallel
