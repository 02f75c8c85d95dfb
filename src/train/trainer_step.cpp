// A step of the trainer: gradients, outcome, update, and the next iteration, begun before the outcome is known.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/train/guards/bad_tensor.hpp"
#include "src/train/trainer.hpp"

namespace trireme::train {

TrainRecord Trainer::step(const data::SampleSource& samples, bool followed) {
  const Timer timer;
  // Releases `samples` if an exception ends the step.
  std::unique_ptr<BatchLoader, void (*)(BatchLoader*)> reading(&loader_,
                                                               [](BatchLoader* loader) { loader->end_reading(); });
  const TraceScope scope(model_.trace(), "iteration", "iteration");
  if (communication_ != nullptr) communication_->restart();
  Begun begun = next_ ? std::move(*std::exchange(next_, std::nullopt)) : begin(samples, progress_, loss_scaler_);
  if (followed && may_run_ahead(begun)) run_ahead(samples, begun);
  complete(samples, begun);
  if (!followed) end_reading();
  TrainRecord& record = begun.record;
  record.elapsed_ms = timer.elapsed_ms();
  if (communication_ != nullptr) record.exposed_ms = communication_->take_ms(record.elapsed_ms);
  const double seconds = record.elapsed_ms / 1000;
  record.tokens_per_second = begun.work.tokens / seconds;
  record.tflops_per_rank = begun.work.flops / seconds / 1e12 / model_.world().size();
  static_cast<void>(reading.release());
  return std::move(record);
}

Trainer::Begun Trainer::begin(const data::SampleSource& samples, const Progress& progress,
                              const optim::LossScaler& loss_scaler, const std::function<void()>& before_backward) {
  Begun begun;
  TrainRecord& record = begun.record;
  record.iteration = progress.iteration + 1;
  record.batch_size = batches_.size(progress.consumed_samples);
  record.loss_scale = loss_scaler.scale();
  begun.at_minimum_scale = loss_scaler.at_minimum();
  const std::int64_t updated =
      options_.lr_schedule.by_samples ? progress.updated_samples + record.batch_size : progress.updates() + 1;
  record.learning_rate = options_.lr_schedule.at(updated);
  if (options_.decoupled_rate) {
    record.decoupled_learning_rate = decoupled(options_.lr_schedule, *options_.decoupled_rate).at(updated);
  }
  if (options_.weight_decay_ramp) record.weight_decay = options_.weight_decay_ramp->at(updated);
  if (is_left_out(record.iteration)) {
    record.skipped = true;
    record.skip_reason = Skip::requested;
    record.lm_loss = record.grad_norm = std::numeric_limits<double>::quiet_NaN();
    return begun;
  }
  begun.samples = update_samples(samples, progress.consumed_samples, record.batch_size);
  begun.form = form_of_update();
  take_memory(samples, begun);
  load_batch(samples, progress, begun);
  begun.work = work_of(begun.micro_batches, record.batch_size);
  begun.parts = loss_parts(record.batch_size);
  compute_gradients(begun, before_backward);
  begun.updates = device_decides();
  if (begun.updates) update_parameters(record);
  return begun;
}

void Trainer::take_memory(const data::SampleSource& samples, Begun begun) {
  const std::int64_t size = begun.record.batch_size;
  if (!needs_memory(size)) return;
  largest_batch_ = size;
  begun.micro_batches = loader_.load(samples, begun.samples, {begun.form.average});
  begun.parts = loss_parts(size);
  run_again(begun);
}

bool Trainer::may_run_ahead(const Begun& begun) const {
  const bool has_times = model_.trace() != nullptr && model_.trace()->has_times();
  return begun.updates && !model_.backend().memory_is_host() && communication_ == nullptr && !has_times &&
         !is_left_out(begun.record.iteration + 1) &&
         !needs_memory(batches_.size(progress_.consumed_samples + begun.record.batch_size));
}

void Trainer::run_ahead(const data::SampleSource& samples, Begun& begun) {
  Progress progress = progress_;
  progress.add_iteration(begun.record.batch_size, std::nullopt, begun.at_minimum_scale);
  optim::LossScaler loss_scaler = loss_scaler_;
  loss_scaler.update(false);
  next_ = begin(samples, progress, loss_scaler, [&] {
    read_outcome(begun);
    if (guard_ && begun.record.skipped) guard_->keep_result_before();
  });
}

void Trainer::discard_next(const data::SampleSource& samples, Begun& begun) {
  model_.backend().compute_stream().synchronize();  // it reads the memory of its samples
  optimizer_->take_back();
  next_.reset();
  begun.micro_batches = loader_.load(samples, begun.samples, begun.form);
}

void Trainer::complete(const data::SampleSource& samples, Begun& begun) {
  TrainRecord& record = begun.record;
  bool lacks_gradients = false;  // those of a discarded iteration are there
  if (record.skip_reason != Skip::requested) {
    if (!begun.is_read) read_outcome(begun);
    if (record.skipped) {
      if (begun.updates) optimizer_->take_back();
      lacks_gradients = next_.has_value();
      if (next_) discard_next(samples, begun);
      await_update();
      outcome_.allow_updates();
      begun.updates = false;
    }
    if (guard_) guard_->check(record, progress_, [&] { run_again(begun); });
    loss_scaler_.update(record.skipped && record.skip_reason == Skip::not_finite);
    if (options_.guards.spiky_loss_factor > 0) progress_.note_loss(record.loss());
    if (rewinds()) {
      const bool is_bad = record.skipped && record.skip_reason == Skip::not_finite &&
                          (!loss_scaler_.dynamic() || begun.at_minimum_scale);
      spikes_.add(record.iteration, record.loss(), is_bad, *rewinds());
    }
    if (!record.skipped && !begun.updates) update_parameters(record);
    if (communication_ != nullptr) model_.backend().compute_stream().synchronize();
  }
  progress_.add_iteration(record.batch_size, record.skipped ? std::optional(record.skip_reason) : std::nullopt,
                          begun.at_minimum_scale);
  if (lacks_gradients && describes_skip(record)) run_again(begun);
  check_skipped(record);
  record.consumed_samples = progress_.consumed_samples;
}

void Trainer::load_batch(const data::SampleSource& samples, const Progress& progress, Begun& begun) {
  const TraceScope reading(model_.trace(), "read samples", "data");
  begun.micro_batches = loader_.load(samples, begun.samples, begun.form);
  std::int64_t next = progress.consumed_samples + begun.record.batch_size;
  for (std::int64_t i = progress.iteration + 2; is_left_out(i); ++i) next += batches_.size(next);
  const std::int64_t next_size = batches_.size(next);
  if (next + next_size <= samples.size()) {
    loader_.read_ahead(samples, update_samples(samples, next, next_size), form_of_update());
  }
}

Trainer::LossParts Trainer::loss_parts(std::int64_t batch_size) const {
  const std::int64_t micro_batches = batch_size / model_.execution().micro_batch_size;
  const LabelCounts parts = options_.loss_average == LossAverage::tokens ? sum_over_data_ranks(loaded_labels())
                                                                         : LabelCounts{micro_batches, micro_batches};
  return {static_cast<double>(std::max<std::int64_t>(parts.tokens, 1)),
          static_cast<double>(std::max<std::int64_t>(parts.samples, 1)), micro_batches};
}

void Trainer::compute_gradients(const Begun& begun, const std::function<void()>& before_backward) {
  const LossParts& parts = begun.parts;
  const double loss_scale = begun.record.loss_scale;
  model::StageMode mode;
  mode.backward = mode.limits_experts = true;
  mode.hidden_dropout = model_.config().hidden_dropout;
  mode.attention_dropout = model_.config().attention_dropout;
  mode.router_jitter = model_.config().experts.jitter_eps;
  mode.seed = options_.seed;
  mode.loss_gradient = loss_scale / parts.tokens;
  mode.sample_loss_gradient = loss_scale / parts.samples;
  if (model_.config().predicts_ahead()) {
    const model::MultiTokenPrediction& ahead = model_.config().ahead;
    mode.ahead_loss_gradient = mode.loss_gradient * ahead.loss_factor / ahead.depths;
  }
  if (model_.config().experts.any()) mode.mean_gradient = loss_scale / static_cast<double>(parts.micro_batches);
  if (guard_) guard_->begin();
  model_.run(begun.micro_batches, mode, /*as_graphs=*/(!guard_ || !guard_->searches()) && model_.knows_fp8_scales(),
             before_backward);
  model_.reduce_gradients();
  loader_.copy_ahead();
  const TraceScope norm(model_.trace(), "loss and gradient norm", "communication");
  outcome_.enqueue(loss_scale, options_.clip_grad);
}

void Trainer::read_outcome(Begun& begun) {
  TrainRecord& record = begun.record;
  const LossParts& parts = begun.parts;
  const StepOutcome::Numbers outcome = outcome_.read();
  const model::LossSums& sums = outcome.all;
  if (guard_) guard_->note(outcome.mine);
  const bool predicts_tokens = model_.config().predicts_tokens();
  record.lm_loss = unsigned_nan(predicts_tokens ? sums.tokens / parts.tokens : sums.samples / parts.samples);
  if (model_.config().has_binary_head()) record.sop_loss = unsigned_nan(sums.samples / parts.samples);
  if (model_.config().predicts_ahead()) record.mtp_loss = unsigned_nan(sums.ahead / parts.tokens);
  record.grad_norm = unsigned_nan(outcome.norm);
  factor_ = outcome.factor;
  note_expert_loads(parts.micro_batches, record);
  fp8_seen_ = model_.fp8_seen();
  // Rounding to FP8 turns an infinite number into a finite one.
  if (!std::ranges::all_of(fp8_seen_, [](double size) { return std::isfinite(size); })) {
    record.grad_norm = std::numeric_limits<double>::quiet_NaN();
  }
  record.skipped = std::isnan(outcome.factor) || std::isnan(record.grad_norm);
  begun.is_read = true;
}

void Trainer::run_again(Begun& begun) {
  compute_gradients(begun);
  read_outcome(begun);
  if (begun.record.skipped) outcome_.allow_updates();
}

bool Trainer::device_decides() const {
  return optimizer_->runs_beside() && model_.config().experts.count == 0 && !model_.execution().fp8.used &&
         options_.guards.spiky_loss_factor == 0 && !observations_.num_zeros && !observations_.params_norm;
}

void Trainer::update_parameters(TrainRecord& record) {
  const TraceScope update(model_.trace(), "optimizer", "update");
  if (before_update_) before_update_();
  optim::Optimizer::Rates rates = record.learning_rate;
  rates.weight_decay = record.weight_decay;
  rates.of_tokens = record.decoupled_learning_rate;
  rates.decays_all = options_.optimizer.decays_all;
  if (observations_.num_zeros) {
    record.num_zeros =
        optim::count_zero_gradients(model_.backend(), model_.parameters(), model_.gradient_groups(), observed_);
  }
  if (model_.config().experts.balances_by(model::BalanceLoss::global)) {
    for (const model::ExpertLoad& load : expert_loads_) balance_loads_[load.layer] = load.chosen;
    model_.stage().set_balance_loads(balance_loads_);
  }
  if (model_.config().moves_router_biases())
    router_biases_->update(expert_loads_, [this](std::size_t i) { return masters_of(i); });
  if (!fp8_seen_.empty()) {
    fp8_history_.add(fp8_seen_, model_.execution().fp8);
    model_.set_fp8_amax(fp8_history_.amax(model_.execution().fp8));
  }
  Stream& compute = model_.backend().compute_stream();
  Stream& stream = update_stream_ ? *update_stream_ : compute;
  if (update_stream_) stream.wait(*compute.record());
  optimizer_->step(
      rates, factor_, [&](std::size_t bucket) { model_.data_parallel().start_gather(bucket, stream); }, &stream,
      outcome_.factor());
  model_.data_parallel().finish_gather();
  if (observations_.params_norm) {
    await_update();
    record.params_norm =
        optim::parameter_norm(model_.backend(), model_.parameters(), *optimizer_, model_.gradient_groups(), observed_);
  }
}

int Trainer::skipped_in_row() const {
  // A dynamic scale skips updates until it is low enough: only skips at its minimum count.
  return loss_scaler_.dynamic() ? progress_.skipped_at_minimum_scale : progress_.skipped_in_row;
}

bool Trainer::describes_skip(const TrainRecord& record) const {
  // Overflows of a dynamic scale are expected.
  return record.skipped && record.skip_reason == Skip::not_finite &&
         (!loss_scaler_.dynamic() || skipped_in_row() >= options_.max_skipped);
}

void Trainer::check_skipped(const TrainRecord& record) {
  if (!describes_skip(record)) return;
  const bool dynamic = loss_scaler_.dynamic();
  const int in_row = skipped_in_row();
  const bool ends = in_row >= options_.max_skipped && !rewinds();
  const std::string tensor = describe_bad_tensor(model_, nullptr, {});
  TRIREME_CHECK(!ends, NumericalError,
                "loss or gradients were not finite in {} iterations in a row{}, the last one {} (loss {}, gradient "
                "norm {}): {}. Try a lower <lr>, check the data{}, or continue from an earlier checkpoint",
                in_row, dynamic ? fmt::format(" at the least loss scale, {:g}", record.loss_scale) : "",
                progress_.iteration, record.loss(), record.grad_norm, tensor,
                dynamic ? ", train in bf16, lower <min_loss_scale>" : "");
  if (model_.world().rank() != 0) return;
  log::warn("no update in iteration {}, whose loss or gradients are not finite (loss {}, gradient norm {}): {}",
            progress_.iteration, record.loss(), record.grad_norm, tensor);
}

}  // namespace trireme::train
