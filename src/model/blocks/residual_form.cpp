#include "src/model/blocks/residual_form.hpp"

#include <vector>

namespace trireme::model {

/// A branch in forward, chunk by chunk.
class ResidualForm::BranchRun {
 public:
  /// `all_rows`: memory for rows of all tensor ranks, with sequence parallelism. A chunk's gathered input makes room
  /// for the chunk's term.
  BranchRun(const parallel::TensorContext& context, const Branch& branch, ConstTensorView x, TensorView y,
            TensorView all_rows)
      : context_(context), branch_(branch), x_(context, x, all_rows), y_(y), terms_(all_rows) {}

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
    if (y) sums_.push_back(context_.sum_chunk(y, term));
  }
  /// Waits for a chunk of y.
  void wait(RowChunk chunk) {
    if (!sums_.empty()) sums_[static_cast<std::size_t>(chunk.index)].wait(context_.stream());
  }

 private:
  const parallel::TensorContext& context_;
  const Branch& branch_;
  Gathering x_;
  TensorView y_, terms_;
  std::vector<Work> sums_;
};

void ResidualForm::forward(const LayerShape& shape, ConstTensorView x, const Branch& attention,
                           const Branch& feed_forward, Saved& saved, TensorView y) const {
  const ArenaScope scope(context_.workspace);
  saved.input = x;
  Forward all{.saved = saved,
              .attention_input = {},
              .feed_forward_input = {},
              .attention = {{}, attention.bias, attention.dropout},
              .feed_forward = {{}, feed_forward.bias, feed_forward.dropout},
              .scratch = {},
              .y = y};
  prepare(shape, all);
  const int chunks = shape.row_chunks;
  std::vector<Forward> parts;
  for (int i = 0; i < chunks; ++i) parts.push_back(rows(shape, all, shape.chunk(i)));
  const auto matrix = [&](auto view) { return view ? shape.as_rows(view) : view; };
  const TensorView all_rows = context_.all_rows_of(shape.as_rows(x));
  BranchRun first(context_, attention, matrix(all.attention_input), matrix(all.attention.value), all_rows);
  BranchRun second(context_, feed_forward, matrix(all.feed_forward_input), matrix(all.feed_forward.value), all_rows);

  for (const Forward& part : parts) {
    enter(part);
    first.start_next();
  }
  const ArenaScope branch_scope(context_.workspace);
  first.run_whole();
  // The feed-forward block follows attention by one chunk, whose sum runs meanwhile, and by one more if it gathers.
  const int lag = context_.sequence_parallel ? 2 : 1;
  for (int i = 0; i < chunks + lag; ++i) {
    if (i < chunks) first.run(shape.chunk(i));
    if (i >= 1 && i <= chunks) {
      first.wait(shape.chunk(i - 1));
      connect(parts[static_cast<std::size_t>(i - 1)]);
      second.start_next();
    }
    if (i >= lag) second.run(shape.chunk(i - lag));
  }
  second.run_whole();
  for (int i = 0; i < chunks; ++i) {
    second.wait(shape.chunk(i));
    leave(parts[static_cast<std::size_t>(i)]);
  }
}

void ResidualForm::backward(const LayerShape& shape, ConstTensorView dy, const BranchGradient& attention,
                            const BranchGradient& feed_forward, const Saved& saved, TensorView dx) const {
  const ArenaScope scope(context_.workspace);
  const auto scratch = [&] { return shape.allocate_residual(context_.workspace); };
  const Backward all{
      .saved = saved,
      .dy = dy,
      .attention = {attention.output, attention.bias_gradient, attention.dropout},
      .feed_forward = {feed_forward.output, feed_forward.bias_gradient, feed_forward.dropout},
      .dfeed_forward = scratch(),
      .scratch = has_gradient_scratch() ? scratch() : TensorView(),
      .dx = dx,
  };
  // Holds the gathered gradient of each branch's result, then this rank's term of the gradient of its input. When a
  // chunk of that is summed, the next branch's gathering overwrites it.
  const TensorView all_rows = context_.all_rows_of(shape.as_rows(dy));
  const auto gathering = [&](const BranchGradient& branch) {
    return Gathering(context_, shape.as_rows(branch.output), all_rows);
  };
  const auto term_of = [&](TensorView dx_of_branch) {
    return context_.sequence_parallel ? all_rows : shape.as_rows(dx_of_branch);
  };
  Gathering second = gathering(feed_forward), first = gathering(attention);
  for (int i = 0; i < shape.row_chunks; ++i) {
    enter_backward(rows(shape, all, shape.chunk(i)));
    if (feed_forward.output_part) second.start_next();
  }
  if (feed_forward.output_part) feed_forward.output_part(second);
  feed_forward.input_part(all.dfeed_forward, term_of(all.dfeed_forward), [&](RowChunk chunk) {
    connect_backward(rows(shape, all, chunk));
    if (attention.output_part) first.start_next();
  });
  if (attention.output_part) attention.output_part(first);
  attention.input_part(dx, term_of(dx), [&](RowChunk chunk) { leave_backward(rows(shape, all, chunk)); });
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

void ResidualForm::add_term(const Term& term, ConstTensorView stream, TensorView sum) const {
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
