#include "src/model/blocks/residual_form.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace trireme::model {

/// A branch in forward, chunk by chunk.
class ResidualForm::BranchRun {
 public:
  /// `all_rows`: memory for rows of all tensor ranks, with sequence parallelism. A chunk's gathered input makes room
  /// for the chunk's term.
  BranchRun(const parallel::TensorContext& context, const Branch& branch, ConstTensorView x, TensorView y,
            TensorView all_rows, Gathering::Fill fill = {})
      : context_(context),
        branch_(branch),
        x_(context, x, all_rows, std::move(fill)),
        y_(y),
        terms_(all_rows),
        sums_(std::make_shared<parallel::ChunkWorks>()) {}

  /// Starts gathering the next chunk of x, which is complete.
  void start_next() {
    if (branch_.gathers) x_.start_next();
  }
  void run_whole() {
    if (branch_.whole) branch_.whole(x_, y_);
  }
  /// Computes a chunk, and starts its sum. The chunks follow one another.
  void run(RowChunk chunk) {
    if (!branch_.chunk) return;
    const TensorView y = chunk.of(y_), term = y && terms_ ? chunk.of(terms_) : y;
    branch_.chunk(chunk, x_, term);
    if (y) sums_->chunks.push_back(context_.sum_chunk(y, term));
  }
  /// The sums of y in flight.
  std::shared_ptr<parallel::ChunkWorks> sums() const { return sums_; }

 private:
  const parallel::TensorContext& context_;
  const Branch& branch_;
  Gathering x_;
  TensorView y_, terms_;
  std::shared_ptr<parallel::ChunkWorks> sums_;
};

ResidualForm::Handover::Handover(const parallel::TensorContext& context, const LayerShape& shape)
    : chunks_(shape.row_chunks),
      residual_(shape.allocate_residual(context.workspace)),
      all_rows_(context.all_rows_of(shape.as_rows(residual_))),
      input_rows_(context.all_rows_of(shape.as_rows(residual_))) {}

void ResidualForm::Handover::leave(Rest rest) {
  rest_ = std::move(rest);
  completed_ = 0;
}

void ResidualForm::Handover::then(std::function<void()> function) {
  if (!rest_) return function();
  then_ = std::move(function);
}

bool ResidualForm::Handover::complete(RowChunk chunk, const InputNorm* norm) {
  if (!rest_) return false;
  rest_(chunk, norm);
  if (++completed_ < chunks_) return true;
  rest_ = {};
  if (const auto function = std::exchange(then_, {})) function();
  return true;
}

void ResidualForm::Handover::finish() {
  while (rest_) complete({completed_, chunks_});
}

void ResidualForm::forward(const LayerShape& shape, ConstTensorView x, const Branch& attention,
                           const Branch& feed_forward, Saved& saved, Handover& handover, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  saved.input = x;
  Forward all{.saved = saved,
              .attention_input = {},
              .feed_forward_input = {},
              .attention = {{}, attention.bias, attention.dropout},
              .feed_forward = {{}, feed_forward.bias, feed_forward.dropout},
              .scratch = handover.residual(),
              .y = y};
  prepare(shape, all);
  const int chunks = shape.row_chunks;
  std::vector<Forward> parts;
  for (int i = 0; i < chunks; ++i) parts.push_back(rows(shape, all, shape.chunk(i)));
  const auto matrix = [&](auto view) { return view ? shape.as_rows(view) : view; };
  const TensorView all_rows = handover.all_rows();
  const Norm* const norm = input_norm();
  const auto make_input = [&](RowChunk chunk) {
    const Forward& part = parts[static_cast<std::size_t>(chunk.index)];
    if (norm == nullptr) {
      handover.complete(chunk);
    } else if (const InputNorm input{*norm, part.saved.normed_1, part.saved.statistics_1};
               !handover.complete(chunk, &input)) {
      norm->forward(part.saved.input, input.normed, input.statistics);
    }
    enter(part);
  };
  BranchRun first(context_, attention, matrix(all.attention_input), matrix(all.attention.value), all_rows,
                  attention.gathers ? make_input : Gathering::Fill());
  BranchRun second(context_, feed_forward, matrix(all.feed_forward_input), matrix(all.feed_forward.value), all_rows);

  for (int i = 0; i < chunks && !attention.gathers; ++i) make_input(shape.chunk(i));
  const ArenaScope branch_scope(context_.workspace);
  first.run_whole();
  // The feed-forward block follows attention by one chunk, whose sum runs meanwhile, and by one more if it gathers.
  const int lag = context_.sequence_parallel ? 2 : 1;
  for (int i = 0; i < chunks + lag; ++i) {
    if (i < chunks) first.run(shape.chunk(i));
    if (i >= 1 && i <= chunks) {
      first.sums()->wait(i - 1, context_.stream());
      connect(parts[static_cast<std::size_t>(i - 1)]);
      second.start_next();
    }
    if (i >= lag) second.run(shape.chunk(i - lag));
  }
  second.run_whole();
  handover.leave([this, parts = std::move(parts), sums = second.sums()](RowChunk chunk, const InputNorm* next) {
    sums->wait(chunk.index, context_.stream());
    leave(parts[static_cast<std::size_t>(chunk.index)], next);
  });
  if (!y) handover.finish();
}

void ResidualForm::backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                            const BranchGradient& feed_forward, const Saved& saved, Handover& handover,
                            TensorView dx) const {
  const ArenaScope scope(context_.workspace);
  const Backward all{
      .saved = saved,
      .dy = dy,
      .attention = {attention.output, attention.bias_gradient, attention.dropout},
      .feed_forward = {feed_forward.output, feed_forward.bias_gradient, feed_forward.dropout},
      .dfeed_forward = handover.residual(),
      .scratch = has_gradient_scratch() ? shape.allocate_residual(context_.workspace) : TensorView(),
      .dx = dx,
  };
  // Holds the gathered gradient of each branch's result, then this rank's term of the gradient of its input. When a
  // chunk of that is summed, the next branch's gathering overwrites it.
  const TensorView all_rows = handover.all_rows();
  const auto run_output_part = [&](const BranchGradient& branch, const Gathering::Fill& make_gradient) {
    if (branch.output_part) {
      Gathering doutput(context_, shape.as_rows(branch.output), all_rows, make_gradient);
      branch.output_part(doutput);
    } else {
      for (int i = 0; i < shape.row_chunks; ++i) make_gradient(shape.chunk(i));
    }
  };
  const auto term_of = [&](TensorView dx_of_branch) {
    return context_.sequence_parallel ? all_rows : shape.as_rows(dx_of_branch);
  };
  run_output_part(feed_forward, [&](RowChunk chunk) {
    handover.complete(chunk);
    enter_backward(rows(shape, all, chunk));
  });
  parallel::ChunkWorks sums = feed_forward.input_part(all.dfeed_forward, term_of(all.dfeed_forward));
  run_output_part(attention, [&](RowChunk chunk) {
    sums.wait(chunk.index, context_.stream());
    connect_backward(rows(shape, all, chunk));
  });
  const auto last = std::make_shared<parallel::ChunkWorks>(attention.input_part(dx, term_of(dx)));
  handover.leave([this, shape, all, last](RowChunk chunk, const InputNorm*) {
    last->wait(chunk.index, context_.stream());
    leave_backward(rows(shape, all, chunk));
  });
  if (shape.row_chunks == 1) handover.finish();
}

ResidualForm::Saved ResidualForm::Saved::rows(RowChunk chunk) const {
  Saved part = *this;
  part.input = chunk.of(input);
  for (TensorView* view :
       {&part.normed_1, &part.statistics_1.mean, &part.statistics_1.reciprocal_deviation, &part.middle, &part.second,
        &part.statistics_2.mean, &part.statistics_2.reciprocal_deviation, &part.result_1, &part.result_2,
        &part.result_statistics_1.mean, &part.result_statistics_1.reciprocal_deviation, &part.result_statistics_2.mean,
        &part.result_statistics_2.reciprocal_deviation}) {
    *view = chunk.of(*view);
  }
  return part;
}

ResidualForm::Forward ResidualForm::rows(const LayerShape& shape, const Forward& all, RowChunk chunk) const {
  Forward part = all;
  part.saved = all.saved.rows(chunk);
  for (TensorView* view : {&part.attention.value, &part.feed_forward.value, &part.scratch, &part.y}) {
    *view = chunk.of(*view);
  }
  part.attention.dropout.positions = part.feed_forward.dropout.positions =
      shape.residual_positions(chunk, context_.tensor_group.rank());
  return part;
}

ResidualForm::Backward ResidualForm::rows(const LayerShape& shape, const Backward& all, RowChunk chunk) const {
  Backward part = all;
  part.saved = all.saved.rows(chunk);
  part.dy = chunk.of(all.dy);
  for (TensorView* view :
       {&part.attention.value, &part.feed_forward.value, &part.dfeed_forward, &part.scratch, &part.dx}) {
    *view = chunk.of(*view);
  }
  part.attention.dropout.positions = part.feed_forward.dropout.positions =
      shape.residual_positions(chunk, context_.tensor_group.rank());
  return part;
}

void ResidualForm::declare(ParameterList& list, const ModelConfig& config, const std::string& prefix, int branch) {
  if (branch == 1 || !config.shared_norm) {
    Norm::declare(list, config, prefix + (branch == 1 ? ".ln_1" : ".ln_2"), config.hidden);
  }
  if (config.sandwich_norm) Norm::declare(list, config, fmt::format("{}.out_ln_{}", prefix, branch), config.hidden);
}

ResidualForm::ResidualForm(const parallel::TensorContext& context, const parallel::ParameterBuffer& parameters,
                           const std::string& prefix, const ModelConfig& config)
    : context_(context),
      norm_1_(context, parameters, prefix + ".ln_1", config),
      norm_2_(context, parameters, prefix + (config.shared_norm ? ".ln_1" : ".ln_2"), config) {}

ResidualForm::Saved ResidualForm::make_saved(const LayerShape& shape, Arena& arena) const {
  Saved saved;
  saved.normed_1 = shape.allocate_residual(arena);
  saved.statistics_1 = norm_1_.make_statistics(shape.local_rows(), shape.dtype, arena);
  saved.middle = shape.allocate_residual(arena);
  saved.second = shape.allocate_residual(arena);
  saved.statistics_2 = norm_2_.make_statistics(shape.local_rows(), shape.dtype, arena);
  return saved;
}

void ResidualForm::add_term(const Term& term, ConstTensorView stream, TensorView sum, const InputNorm* next) const {
  if (next != nullptr) {
    return next->norm.forward_sum(term.value, term.bias, stream, term.dropout, sum, next->normed, next->statistics);
  }
  context_.backend.elementwise().bias_dropout_add(context_.stream(), term.value, term.bias, stream, term.dropout, sum);
}

void ResidualForm::backward_term(const Term& term, ConstTensorView dsum) const {
  context_.backend.elementwise().bias_dropout_add_backward(context_.stream(), dsum, term.dropout, term.value,
                                                           term.bias);
}

void ResidualForm::norm_result(const Term& term, const Norm& norm, const NormStatistics& statistics,
                               TensorView normed) const {
  if (term.bias) {
    context_.backend.elementwise().fill(context_.stream(), 0, normed);
    add_term({term.value, term.bias, {}}, normed, term.value);
  }
  norm.forward(term.value, normed, statistics);
}

void ResidualForm::backward_normed(const Term& term, ConstTensorView dsum, const Norm& norm, ConstTensorView result,
                                   const NormStatistics& statistics) const {
  ConstTensorView dnormed = dsum;
  if (term.dropout.enabled()) {
    backward_term({term.value, {}, term.dropout}, dsum);
    dnormed = term.value;
  }
  norm.backward(dnormed, result, statistics, {}, term.value);
  if (term.bias) backward_term({term.value, term.bias, {}}, term.value);
}

}  // namespace trireme::model
