#include "src/train/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/train/guards/bad_tensor.hpp"
#include "src/train/state_tensors.hpp"

namespace trireme::train {
namespace {

/// Returns `value`. A NaN loses its sign, which differs from machine to machine and would be printed.
double unsigned_nan(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

}  // namespace

Trainer::Trainer(ParallelModel& model, const TrainOptions& options)
    : model_(model),
      options_(options),
      batches_(options.global_batch_size, options.ramp_up, options.decrease_batch_size,
               model.execution().micro_batch_size, model.grid().data_size()),
      loader_(model.backend(), model.sequence_shard(), model.execution().micro_batch_size, batches_.max_micro_batches(),
              model.execution().dtype,
              training_fields(model.config(), model.execution(), model.grid().tensor_size(), options.documents)),
      optimizer_(
          optim::make_optimizer(model.backend(), model.parameters(), model.gradient_groups(), options.optimizer)),
      loss_scaler_(options.loss_scale),
      norm_sum_(model.backend(), DType::fp64, {1}) {
  if (model.config().experts.router_bias) router_biases_.emplace(model);
  GuardOptions guards = options.guards;
  if (options.loss_scale.dynamic) guards.check_for_nan = false;
  if (guards.check_for_nan || guards.spiky_loss_factor > 0) guard_.emplace(model, guards);
  if (model.execution().updates_beside_forward() && optimizer_->runs_beside()) {
    update_stream_ = model.backend().make_background_stream();
  }
}

Trainer::~Trainer() {
  if (!update_stream_) return;
  try {
    update_stream_->synchronize();  // before the memory of the update is freed
  } catch (const Error&) {
    // No one reads the results after this point.
  }
}

void Trainer::start() {
  optimizer_->reset_masters();
  if (router_biases_) router_biases_->read([this](std::size_t i) { return masters_of(i); });
}

std::vector<BatchLoader::Sample> Trainer::batch_samples(std::int64_t first_index, std::int64_t first_number,
                                                        std::int64_t size) const {
  const Communicator& data = *model_.communicators().data;
  return BatchLoader::samples_of_rank(first_index, first_number, size, data.rank(),
                                      {model_.execution().micro_batch_size, data.size()});
}

std::vector<BatchLoader::Sample> Trainer::update_samples(const data::SampleSource& samples, std::int64_t first,
                                                         std::int64_t size) const {
  if (!model_.execution().variable_lengths || options_.loss_average != LossAverage::tokens) {
    return batch_samples(first, first, size);
  }
  const std::vector<std::int64_t> order = longest_first(samples, first, size);
  std::vector<BatchLoader::Sample> list = batch_samples(0, 0, size);
  for (BatchLoader::Sample& sample : list) {
    sample.index = sample.number = order[static_cast<std::size_t>(sample.index)];
  }
  return list;
}

BatchLoader::Form Trainer::form_of_update(std::int64_t size) const {
  const bool is_shortened = model_.execution().variable_lengths && size <= largest_batch_;
  return {options_.loss_average, is_shortened ? model_.length_multiple() : 0};
}

Trainer::Work Trainer::work_of(const std::vector<model::MicroBatch>& micro_batches, std::int64_t batch_size) const {
  const ExecutionConfig& execution = model_.execution();
  const std::int64_t s = execution.sequence_length;
  if (!execution.variable_lengths) {
    return {static_cast<double>(batch_size * s),
            model::model_flops(model_.config(), batch_size, s, execution.max_predictions)};
  }
  std::array<double, 2> sums = {static_cast<double>(loader_.unpadded_positions()), 0};
  for (std::int64_t j = 0; j < std::ssize(micro_batches); ++j) {
    sums[1] += model::model_flops(model_.config(), execution.micro_batch_size, loader_.shard(j).sequence,
                                  execution.max_predictions);
  }
  Communicator& world = model_.world();
  all_reduce_numbers(world, sums, ReduceOp::sum);
  const double ranks_of_replica = world.size() / model_.grid().data_size();
  return {sums[0] / ranks_of_replica, sums[1] / ranks_of_replica};
}

Trainer::LabelCounts Trainer::loaded_labels() const {
  const auto samples = std::ranges::count_if(loader_.sample_labels(), [](std::int32_t label) { return label >= 0; });
  return {loader_.counted_tokens(), samples};
}

Trainer::LabelCounts Trainer::sum_over_data_ranks(const LabelCounts& mine) const {
  Communicator& world = model_.world();
  std::array<std::int64_t, 2> counts = {mine.tokens, mine.samples};
  all_reduce_numbers(world, counts, ReduceOp::sum);
  const int ranks_of_replica = world.size() / model_.grid().data_size();
  return {counts[0] / ranks_of_replica, counts[1] / ranks_of_replica};
}

std::int64_t Trainer::count_correct() {
  const std::vector<double> scores = model_.take_sample_scores();
  const std::vector<std::int32_t>& labels = loader_.sample_labels();
  if (scores.empty()) return 0;
  const std::size_t classes = scores.size() / labels.size();
  std::int64_t correct = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = std::span(scores).subspan(i * classes, classes);
    if (std::ranges::max_element(row) - row.begin() == labels[i]) ++correct;
  }
  return correct;
}

TrainRecord Trainer::step(const data::SampleSource& samples) {
  const Timer timer;
  // Releases `samples` on every exit path.
  const std::unique_ptr<BatchLoader, void (*)(BatchLoader*)> reading(
      &loader_, [](BatchLoader* loader) { loader->end_reading(); });
  const TraceScope scope(model_.trace(), "iteration", "iteration");
  if (communication_ != nullptr) communication_->restart();
  const std::int64_t batch_size = batches_.size(progress_.consumed_samples);

  TrainRecord record;
  record.iteration = progress_.iteration + 1;
  record.batch_size = batch_size;
  record.loss_scale = loss_scaler_.scale();
  const std::int64_t updated =
      options_.lr_schedule.by_samples ? progress_.updated_samples + batch_size : progress_.updates() + 1;
  record.learning_rate = options_.lr_schedule.at(updated);
  if (options_.decoupled_rate) {
    record.decoupled_learning_rate = decoupled(options_.lr_schedule, *options_.decoupled_rate).at(updated);
  }
  if (options_.weight_decay_ramp) record.weight_decay = options_.weight_decay_ramp->at(updated);
  Work work;
  const bool at_minimum_scale = loss_scaler_.at_minimum();
  if (is_left_out(record.iteration)) {
    record.skipped = true;
    record.skip_reason = Skip::requested;
    record.lm_loss = record.grad_norm = std::numeric_limits<double>::quiet_NaN();
  } else {
    const std::vector<model::MicroBatch> micro_batches = load_batch(samples, batch_size);
    work = work_of(micro_batches, batch_size);
    compute_gradients(micro_batches, batch_size, record);
    if (guard_) guard_->check(record, progress_, [&] { compute_gradients(micro_batches, batch_size, record); });
    loss_scaler_.update(record.skipped && record.skip_reason == Skip::not_finite);
    if (options_.guards.spiky_loss_factor > 0) progress_.note_loss(record.loss());
    if (!record.skipped) update_parameters(record);
    model_.backend().compute_stream().synchronize();
  }

  progress_.add_iteration(batch_size, record.skipped ? std::optional(record.skip_reason) : std::nullopt,
                          at_minimum_scale);
  check_skipped(record);
  record.consumed_samples = progress_.consumed_samples;
  record.elapsed_ms = timer.elapsed_ms();
  if (communication_ != nullptr) record.exposed_ms = communication_->take_ms();
  const double seconds = record.elapsed_ms / 1000;
  record.tokens_per_second = work.tokens / seconds;
  record.tflops_per_rank = work.flops / seconds / 1e12 / model_.world().size();
  return record;
}

std::vector<model::MicroBatch> Trainer::load_batch(const data::SampleSource& samples, std::int64_t batch_size) {
  const TraceScope reading(model_.trace(), "read samples", "data");
  const std::int64_t first = progress_.consumed_samples;
  std::vector<model::MicroBatch> micro_batches =
      loader_.load(samples, update_samples(samples, first, batch_size), form_of_update(batch_size));
  largest_batch_ = std::max(largest_batch_, batch_size);
  std::int64_t next = first + batch_size;
  for (std::int64_t i = progress_.iteration + 2; is_left_out(i); ++i) next += batches_.size(next);
  const std::int64_t next_size = batches_.size(next);
  if (next + next_size <= samples.size()) {
    loader_.read_ahead(samples, update_samples(samples, next, next_size), form_of_update(next_size));
  }
  return micro_batches;
}

void Trainer::compute_gradients(const std::vector<model::MicroBatch>& micro_batches, std::int64_t batch_size,
                                TrainRecord& record) {
  // A loss is a weighted sum over this number: of labels, or of micro-batches.
  const std::int64_t micro_batches_of_all = batch_size / model_.execution().micro_batch_size;
  const LabelCounts parts = options_.loss_average == LossAverage::tokens
                                ? sum_over_data_ranks(loaded_labels())
                                : LabelCounts{micro_batches_of_all, micro_batches_of_all};
  const double tokens = static_cast<double>(std::max<std::int64_t>(parts.tokens, 1));
  const double samples = static_cast<double>(std::max<std::int64_t>(parts.samples, 1));
  model::StageMode mode;
  mode.backward = true;
  mode.hidden_dropout = model_.config().hidden_dropout;
  mode.attention_dropout = model_.config().attention_dropout;
  mode.router_jitter = model_.config().experts.jitter_eps;
  mode.seed = options_.seed;
  mode.loss_gradient = record.loss_scale / tokens;
  mode.sample_loss_gradient = record.loss_scale / samples;
  if (model_.config().predicts_ahead()) {
    const model::MultiTokenPrediction& ahead = model_.config().ahead;
    mode.ahead_loss_gradient = mode.loss_gradient * ahead.loss_factor / ahead.depths;
  }
  mode.mean_gradient = record.loss_scale / static_cast<double>(micro_batches_of_all);
  if (guard_) guard_->begin();
  model_.run(micro_batches, mode, /*as_graphs=*/(!guard_ || !guard_->searches()) && model_.knows_fp8_scales());
  model_.reduce_gradients();
  loader_.copy_ahead();

  const TraceScope norm(model_.trace(), "loss and gradient norm", "communication");
  const model::LossSums mine = model_.take_loss_sums(), sums = model_.sum_over_ranks(mine);
  if (guard_) guard_->note(mine);
  record.lm_loss = unsigned_nan(model_.config().predicts_tokens() ? sums.tokens / tokens : sums.samples / samples);
  if (model_.config().has_binary_head()) record.sop_loss = unsigned_nan(sums.samples / samples);
  if (model_.config().predicts_ahead()) record.mtp_loss = unsigned_nan(sums.ahead / tokens);
  record.grad_norm = unsigned_nan(optim::gradient_norm(model_.backend(), model_.parameters(), model_.gradient_groups(),
                                                       norm_sum_, options_.grad_norm_power) /
                                  record.loss_scale);
  note_expert_loads(micro_batches_of_all, record);
  fp8_seen_ = model_.fp8_seen();
  // Rounding to FP8 turns an infinite number into a finite one.
  if (!std::ranges::all_of(fp8_seen_, [](double size) { return std::isfinite(size); })) {
    record.grad_norm = std::numeric_limits<double>::quiet_NaN();
  }
  record.skipped = !std::isfinite(record.grad_norm) || !std::isfinite(record.loss());
}

void Trainer::note_expert_loads(std::int64_t micro_batches, TrainRecord& record) {
  record.experts.clear();
  expert_loads_ = model_.take_expert_loads();
  for (const model::ExpertLoad& load : expert_loads_) {
    const double kept = std::accumulate(load.tokens.begin(), load.tokens.end(), 0.0);
    const double mean = kept / static_cast<double>(load.tokens.size());
    LayerLoad layer{.layer = load.layer,
                    .balance_loss = load.balance / static_cast<double>(micro_batches),
                    .z_loss = load.z / static_cast<double>(micro_batches),
                    .router_entropy = load.entropy / static_cast<double>(micro_batches),
                    .max_load = std::ranges::max(load.tokens) / std::max(mean, 1.0),
                    .dropped = load.dropped / std::max(kept + load.dropped, 1.0)};
    for (const double tokens : load.tokens) {
      if (tokens > 0) layer.entropy -= tokens / kept * std::log(tokens / kept);
    }
    layer.entropy /= std::log(std::max<double>(2, static_cast<double>(load.tokens.size())));
    record.experts.push_back(layer);
  }
}

void Trainer::update_parameters(TrainRecord& record) {
  const TraceScope update(model_.trace(), "optimizer", "update");
  if (before_update_) before_update_();
  const double clip = optim::clip_coefficient(record.grad_norm, options_.clip_grad);
  optim::Optimizer::Rates rates = record.learning_rate;
  rates.weight_decay = record.weight_decay;
  rates.of_tokens = record.decoupled_learning_rate;
  rates.decays_all = options_.optimizer.decays_all;
  if (observations_.num_zeros) {
    record.num_zeros =
        optim::count_zero_gradients(model_.backend(), model_.parameters(), model_.gradient_groups(), norm_sum_);
  }
  if (model_.config().experts.balances_by(model::BalanceLoss::global)) {
    for (const model::ExpertLoad& load : expert_loads_) balance_loads_[load.layer] = load.chosen;
    model_.stage().set_balance_loads(balance_loads_);
  }
  if (router_biases_) router_biases_->update(expert_loads_, [this](std::size_t i) { return masters_of(i); });
  if (!fp8_seen_.empty()) {
    fp8_history_.add(fp8_seen_, model_.execution().fp8);
    model_.set_fp8_amax(fp8_history_.amax(model_.execution().fp8));
  }
  Stream& compute = model_.backend().compute_stream();
  Stream& stream = update_stream_ ? *update_stream_ : compute;
  if (update_stream_) stream.wait(*compute.record());
  optimizer_->step(
      rates, clip / record.loss_scale, [&](std::size_t bucket) { model_.data_parallel().start_gather(bucket, stream); },
      &stream);
  model_.data_parallel().finish_gather();
  if (observations_.params_norm) {
    await_update();
    record.params_norm =
        optim::parameter_norm(model_.backend(), model_.parameters(), *optimizer_, model_.gradient_groups(), norm_sum_);
  }
}

void Trainer::check_skipped(const TrainRecord& record) {
  // A dynamic scale skips updates until it is low enough: only skips at its minimum count.
  const bool dynamic = loss_scaler_.dynamic();
  const int in_row = dynamic ? progress_.skipped_at_minimum_scale : progress_.skipped_in_row;
  const bool ends = in_row >= options_.max_skipped;
  // Overflows of a dynamic scale are expected.
  if (!record.skipped || record.skip_reason != Skip::not_finite || (dynamic && !ends)) return;
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

void Trainer::check_replicas() {
  if (model_.gradient_group().size() == 1) return;
  if (!replicas_) replicas_.emplace(model_, *optimizer_);
  replicas_->check(progress_.iteration);
}

std::optional<EvaluationRecord> Trainer::evaluate(const data::SampleSource& samples, std::int64_t begin,
                                                  std::int64_t iterations, const std::function<bool()>& stop,
                                                  data::Split split) {
  const std::int64_t batch_size = batches_.max_size();
  LabelCounts mine;
  double correct = 0;
  bool stopped = false;
  for (std::int64_t i = 0; i < iterations && !stopped; ++i) {
    model_.run(loader_.load(samples, batch_samples(begin + i * batch_size, 0, batch_size),
                            {.length_multiple = form_of_update(batch_size).length_multiple}),
               {});
    const LabelCounts loaded = loaded_labels();
    mine.tokens += loaded.tokens;
    mine.samples += loaded.samples;
    correct += static_cast<double>(count_correct());
    stopped = stop && i + 1 < iterations && stop();
  }
  if (split == data::Split::test) {
    progress_.tested = !stopped;
  } else {
    progress_.evaluation_left = stopped;
  }
  const model::LossSums sums = model_.take_global_loss_sums();
  if (stopped) return std::nullopt;
  const LabelCounts counts = sum_over_data_ranks(mine);
  EvaluationRecord record;
  record.iteration = progress_.iteration;
  record.consumed_samples = progress_.consumed_samples;
  record.split = split;
  record.loss = unsigned_nan(sums.tokens / static_cast<double>(std::max<std::int64_t>(counts.tokens, 1)));
  record.perplexity = std::exp(std::min(20.0, record.loss));
  if (model_.config().has_binary_head()) {
    const double samples = static_cast<double>(std::max<std::int64_t>(counts.samples, 1));
    record.sop_loss = unsigned_nan(sums.samples / samples);
    record.sop_accuracy = all_reduce_number(model_.world(), correct, ReduceOp::sum) / samples;
  }
  return record;
}

std::vector<checkpoint::StateTensor> Trainer::state_tensors(OptimizerState optimizer) {
  await_update();
  std::vector<checkpoint::StateTensor> tensors;
  for (std::size_t i = 0; i < model_.parameters().parameters().size(); ++i) {
    for (const optim::Optimizer::State& state : optimizer_->state(i)) {
      if (optimizer == OptimizerState::left_out && state.kind != "model") continue;
      tensors.push_back(state_tensor(model_, i, state.kind, state.data));
    }
  }
  return tensors;
}

Attributes Trainer::state_attributes() const {
  return attributes_of(
      SavedState{progress_, optimizer_->updates(), loss_scaler_.state(), balance_loads_, fp8_history_});
}

void Trainer::restore(const Attributes& attributes, OptimizerState optimizer) {
  const SavedState saved = state_from(attributes);
  const bool kept = optimizer == OptimizerState::kept;
  await_update();
  progress_ = saved.progress;
  optimizer_->restore(kept ? saved.updates : 0);
  if (model_.config().experts.balances_by(model::BalanceLoss::global)) {
    balance_loads_ = saved.expert_loads;
    model_.stage().set_balance_loads(balance_loads_);
  }
  const parallel::Fp8Options& fp8 = model_.execution().fp8;
  if (kept && fp8.used && fp8.recipe == parallel::Fp8Recipe::delayed && !saved.fp8_history.empty()) {
    fp8_history_ = saved.fp8_history;
    model_.set_fp8_amax(fp8_history_.amax(fp8));
  }
  if (router_biases_) router_biases_->read([this](std::size_t i) { return masters_of(i); });
  model_.data_parallel().gather_parameters();
  if (kept && loss_scaler_.dynamic()) loss_scaler_.restore(saved.loss_scale);
}

}  // namespace trireme::train
