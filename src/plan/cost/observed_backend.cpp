#include "src/plan/cost/observed_backend.hpp"

#include <initializer_list>

#include "src/base/check.hpp"

namespace trireme::plan {
namespace {

/// Sums sizes; empty tensors count nothing.
double bytes_of(std::initializer_list<ConstTensorView> tensors) {
  double sum = 0;
  for (const ConstTensorView& tensor : tensors) {
    if (tensor) sum += static_cast<double>(tensor.size_bytes());
  }
  return sum;
}

std::int64_t rows_of(ConstTensorView x) { return x.numel() == 0 ? 0 : x.numel() / x.shape().back(); }

KernelCall memory_bound(Line line, double bytes, int launches = 1) { return {line, bytes, launches}; }

}  // namespace

/// All kernel families, each passed on to the inner backend's.
struct ObservedBackend::Kernels final : GemmKernels,
                                        NormKernels,
                                        AttentionKernels,
                                        ElementwiseKernels,
                                        EmbeddingKernels,
                                        CrossEntropyKernels,
                                        OptimizerKernels,
                                        ReduceKernels,
                                        RotaryKernels {
  explicit Kernels(Backend& inner) : b(inner) {}
  Backend& b;
  CallObserver* observer = nullptr;
  std::int64_t logits_columns = 0;

  template <class Work>
  void run(Stream& stream, const KernelCall& call, Work&& work) {
    if (observer == nullptr) return work();
    observer->begin(stream, call);
    work();
    observer->end(stream, call);
  }

  void linear(Stream& stream, ConstTensorView x, ConstTensorView w, ConstTensorView bias, Activation activation,
              TensorView pre_activation, TensorView y) override {
    const bool activates = activation != Activation::none, keeps = activates && pre_activation;
    const ProductCall product{.m = rows_of(x),
                              .n = y.shape().back(),
                              .k = x.shape().back(),
                              .bytes = bytes_of({x, w, y, keeps ? pre_activation : TensorView()}),
                              .end = activates ? ProductEnd::activation
                                     : bias    ? ProductEnd::bias
                                               : ProductEnd::none,
                              .can_fuse = !activates || activation == Activation::gelu_tanh,
                              .end_bytes = bytes_of({y, y, keeps ? y : TensorView()})};
    run(stream, {.line = product.n == logits_columns ? Line::logits : Line::forward, .product = product},
        [&] { b.gemm().linear(stream, x, w, bias, activation, pre_activation, y); });
  }
  void linear_backward_input(Stream& stream, ConstTensorView dy, ConstTensorView w, Activation activation,
                             ConstTensorView pre_activation, TensorView dx) override {
    const bool ends = activation != Activation::none;
    const ProductCall product{.m = rows_of(dy),
                              .n = dx.shape().back(),
                              .k = dy.shape().back(),
                              .bytes = bytes_of({dy, w, dx, ends ? pre_activation : ConstTensorView()}),
                              .end = ends ? ProductEnd::activation_backward : ProductEnd::none,
                              .can_fuse = activation == Activation::gelu_tanh,
                              .end_bytes = bytes_of({dx, dx, pre_activation})};
    run(stream, {.line = product.k == logits_columns ? Line::logits : Line::input_gradient, .product = product},
        [&] { b.gemm().linear_backward_input(stream, dy, w, activation, pre_activation, dx); });
  }
  void linear_backward_weight(Stream& stream, ConstTensorView dy, ConstTensorView x, TensorView dw,
                              TensorView dbias) override {
    const ProductCall product{.m = dy.shape().back(),
                              .n = x.shape().back(),
                              .k = rows_of(dy),
                              .bytes = bytes_of({dy, x, dw, dw}),
                              .end = dbias ? ProductEnd::bias_gradient : ProductEnd::none,
                              .end_bytes = bytes_of({dy})};
    run(stream, {.line = product.m == logits_columns ? Line::logits : Line::weight_gradient, .product = product},
        [&] { b.gemm().linear_backward_weight(stream, dy, x, dw, dbias); });
  }
  bool set_epilogue_form(EpilogueForm form) override { return b.gemm().set_epilogue_form(form); }
  bool latest_epilogue_is_fused() const override { return b.gemm().latest_epilogue_is_fused(); }
  void separate_latest_epilogue() override { b.gemm().separate_latest_epilogue(); }

  void normalise(Stream& stream, ConstTensorView x, const NormWeight& weight, ConstTensorView bias, double epsilon,
                 TensorView y, NormStatistics statistics) override {
    run(stream, memory_bound(Line::norm, bytes_of({x, y})),
        [&] { b.norm().normalise(stream, x, weight, bias, epsilon, y, statistics); });
  }
  void normalise_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, const NormWeight& weight,
                          NormStatistics statistics, ConstTensorView residual_gradient, TensorView dx,
                          TensorView dweight, TensorView dbias) override {
    // Longer rows do not fit the registers of cuda/kernels/norm_backward.cu: they are read twice.
    constexpr std::int64_t max_held_width = 6144;
    const bool held = x.shape().back() <= max_held_width;
    const double again = held ? 0 : bytes_of({dy, x});
    run(stream, memory_bound(Line::norm_backward, bytes_of({dy, x, residual_gradient, dx}) + again, held ? 2 : 3),
        [&] { b.norm().normalise_backward(stream, dy, x, weight, statistics, residual_gradient, dx, dweight, dbias); });
  }
  void bias_dropout_add_norm(Stream& stream, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                             const Dropout& dropout, const NormWeight& weight, ConstTensorView norm_bias,
                             double epsilon, TensorView sum, TensorView y, NormStatistics statistics) override {
    run(stream, memory_bound(Line::norm, bytes_of({x, residual, sum, y})), [&] {
      b.norm().bias_dropout_add_norm(stream, x, bias, residual, dropout, weight, norm_bias, epsilon, sum, y,
                                     statistics);
    });
  }

  std::string check_head_dim(DType dtype, std::int64_t head_dim) const override {
    return b.attention().check_head_dim(dtype, head_dim);
  }
  void attention(Stream& stream, const AttentionProblem& problem, ConstHeads q, ConstHeads k, ConstHeads v, Heads out,
                 TensorView log_sum_exp) override {
    run(stream, {.line = Line::attention, .attention = problem},
        [&] { b.attention().attention(stream, problem, q, k, v, out, log_sum_exp); });
  }
  void attention_backward(Stream& stream, const AttentionProblem& problem, ConstHeads dout, ConstHeads q, ConstHeads k,
                          ConstHeads v, ConstHeads out, ConstTensorView log_sum_exp, TensorView row_dot, Heads dq,
                          Heads dk, Heads dv) override {
    // `bytes` are those of the sums over dout times out alone.
    const double rows = static_cast<double>(problem.queries * problem.batch * problem.heads);
    const double bytes = 2 * rows * static_cast<double>(problem.head_dim * std::int64_t(size_of(out.data.dtype())));
    run(stream, {.line = Line::attention_backward, .bytes = bytes, .launches = 3, .attention = problem}, [&] {
      b.attention().attention_backward(stream, problem, dout, q, k, v, out, log_sum_exp, row_dot, dq, dk, dv);
    });
  }
  void copy_heads(Stream& stream, const HeadsShape& shape, ConstHeads from, Heads to) override {
    const double numel = static_cast<double>(shape.positions * shape.batch * shape.heads * shape.head_dim);
    run(stream,
        memory_bound(Line::copies, numel * static_cast<double>(size_of(from.data.dtype()) + size_of(to.data.dtype()))),
        [&] { b.attention().copy_heads(stream, shape, from, to); });
  }

  void fill(Stream& stream, double value, TensorView y) override {
    run(stream, memory_bound(Line::gradients, bytes_of({y})), [&] { b.elementwise().fill(stream, value, y); });
  }
  void convert(Stream& stream, ConstTensorView x, TensorView y) override {
    run(stream, memory_bound(Line::copies, bytes_of({x, y})), [&] { b.elementwise().convert(stream, x, y); });
  }
  void add(Stream& stream, ConstTensorView x, TensorView y) override {
    run(stream, memory_bound(Line::copies, bytes_of({x, y, y})), [&] { b.elementwise().add(stream, x, y); });
  }
  void scale(Stream& stream, double factor, TensorView y) override {
    run(stream, memory_bound(Line::copies, bytes_of({y, y})), [&] { b.elementwise().scale(stream, factor, y); });
  }
  void divide_by_norm(Stream& stream, ConstTensorView squares, double least, TensorView y) override {
    run(stream, memory_bound(Line::copies, bytes_of({y, y})),
        [&] { b.elementwise().divide_by_norm(stream, squares, least, y); });
  }
  void bias_dropout_add(Stream& stream, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                        const Dropout& dropout, TensorView sum) override {
    run(stream, memory_bound(Line::dropout, bytes_of({x, residual, sum})),
        [&] { b.elementwise().bias_dropout_add(stream, x, bias, residual, dropout, sum); });
  }
  void bias_dropout_add_backward(Stream& stream, ConstTensorView dsum, const Dropout& dropout, TensorView dx,
                                 TensorView dbias) override {
    const bool idle = !dbias && !dropout.enabled() && dsum.data() == dx.data();
    const bool writes = dropout.enabled() || dsum.data() != dx.data();
    run(stream,
        memory_bound(Line::dropout, idle ? 0 : bytes_of({dsum, writes ? dx : TensorView()}),
                     idle    ? 0
                     : dbias ? 2
                             : 1),
        [&] { b.elementwise().bias_dropout_add_backward(stream, dsum, dropout, dx, dbias); });
  }
  void activate(Stream& stream, Activation activation, ConstTensorView x, TensorView y) override {
    run(stream, memory_bound(Line::activation, bytes_of({x, y})),
        [&] { b.elementwise().activate(stream, activation, x, y); });
  }
  void activate_backward(Stream& stream, Activation activation, ConstTensorView dy, ConstTensorView x,
                         TensorView dx) override {
    run(stream, memory_bound(Line::activation, bytes_of({dy, x, dx})),
        [&] { b.elementwise().activate_backward(stream, activation, dy, x, dx); });
  }
  void swiglu(Stream& stream, ConstTensorView gate_up, TensorView y) override {
    run(stream, memory_bound(Line::activation, bytes_of({gate_up, y})),
        [&] { b.elementwise().swiglu(stream, gate_up, y); });
  }
  void swiglu_backward(Stream& stream, ConstTensorView dy, ConstTensorView gate_up, TensorView dgate_up) override {
    run(stream, memory_bound(Line::activation, bytes_of({dy, gate_up, dgate_up})),
        [&] { b.elementwise().swiglu_backward(stream, dy, gate_up, dgate_up); });
  }

  void lookup(Stream& stream, ConstTensorView ids, ConstTensorView table, std::int64_t first_row,
              TensorView y) override {
    run(stream, memory_bound(Line::embedding, bytes_of({ids, y, y})),
        [&] { b.embedding().lookup(stream, ids, table, first_row, y); });
  }
  void lookup_backward(Stream& stream, ConstTensorView ids, ConstTensorView dy, std::int64_t first_row,
                       TensorView dtable) override {
    // At most one row of the table for each id is read and written.
    const double row = bytes_of({dtable}) / static_cast<double>(dtable.shape()[0]);
    const double rows = static_cast<double>(std::min(ids.numel(), dtable.shape()[0]));
    run(stream, memory_bound(Line::embedding, bytes_of({ids, dy}) + 2 * rows * row),
        [&] { b.embedding().lookup_backward(stream, ids, dy, first_row, dtable); });
  }
  void add_positions(Stream& stream, ConstTensorView table, const Positions& positions, const Dropout& dropout,
                     TensorView x) override {
    const bool idle = !table && !dropout.enabled();
    run(stream, memory_bound(Line::embedding, idle ? 0 : bytes_of({x, x}), idle ? 0 : 1),
        [&] { b.embedding().add_positions(stream, table, positions, dropout, x); });
  }
  void add_positions_backward(Stream& stream, ConstTensorView dy, const Positions& positions, const Dropout& dropout,
                              TensorView dx, TensorView dtable) override {
    run(stream, memory_bound(Line::embedding, bytes_of({dy, dx, dtable, dtable})),
        [&] { b.embedding().add_positions_backward(stream, dy, positions, dropout, dx, dtable); });
  }

  void statistics(Stream& stream, ConstTensorView logits, VocabularyShard shard, ConstTensorView targets,
                  TensorView maximum, TensorView sum_exp, TensorView target_logit) override {
    run(stream, memory_bound(Line::cross_entropy, bytes_of({logits})),
        [&] { b.cross_entropy().statistics(stream, logits, shard, targets, maximum, sum_exp, target_logit); });
  }
  void rescale(Stream& stream, ConstTensorView own_maximum, ConstTensorView maximum, TensorView sum_exp) override {
    run(stream, memory_bound(Line::cross_entropy, bytes_of({own_maximum, maximum, sum_exp, sum_exp})),
        [&] { b.cross_entropy().rescale(stream, own_maximum, maximum, sum_exp); });
  }
  void losses(Stream& stream, ConstTensorView maximum, ConstTensorView sum_exp, ConstTensorView target_logit,
              ConstTensorView weights, TensorView losses) override {
    run(stream, memory_bound(Line::cross_entropy, bytes_of({maximum, sum_exp, target_logit, weights, losses})),
        [&] { b.cross_entropy().losses(stream, maximum, sum_exp, target_logit, weights, losses); });
  }
  void rivals(Stream& stream, ConstTensorView logits, VocabularyShard shard, ConstTensorView targets,
              ConstTensorView target_logit, TensorView rivals) override {
    run(stream, memory_bound(Line::cross_entropy, bytes_of({logits})),
        [&] { b.cross_entropy().rivals(stream, logits, shard, targets, target_logit, rivals); });
  }
  void backward(Stream& stream, VocabularyShard shard, ConstTensorView maximum, ConstTensorView sum_exp,
                ConstTensorView targets, ConstTensorView loss_gradient, TensorView logits) override {
    run(stream, memory_bound(Line::cross_entropy, bytes_of({logits, logits})),
        [&] { b.cross_entropy().backward(stream, shard, maximum, sum_exp, targets, loss_gradient, logits); });
  }

  void adamw(Stream& stream, const AdamWStep& step, ConstTensorView gradient, TensorView w, TensorView m, TensorView v,
             TensorView rounded) override {
    run(stream, memory_bound(Line::optimizer, bytes_of({gradient, w, w, m, m, v, v, rounded})),
        [&] { b.optimizer().adamw(stream, step, gradient, w, m, v, rounded); });
  }
  void sgd(Stream& stream, const SgdStep& step, ConstTensorView gradient, TensorView w, TensorView m,
           TensorView rounded) override {
    run(stream, memory_bound(Line::optimizer, bytes_of({gradient, w, w, m, m, rounded})),
        [&] { b.optimizer().sgd(stream, step, gradient, w, m, rounded); });
  }

  void sum_squares(Stream& stream, ConstTensorView x, TensorView result) override {
    run(stream, memory_bound(Line::gradients, bytes_of({x}), x.numel() == 0 ? 0 : 2),
        [&] { b.reduce().sum_squares(stream, x, result); });
  }
  void sum(Stream& stream, ConstTensorView x, TensorView result) override {
    run(stream, memory_bound(Line::cross_entropy, bytes_of({x}), x.numel() == 0 ? 0 : 2),
        [&] { b.reduce().sum(stream, x, result); });
  }
  void sum_powers(Stream& stream, ConstTensorView x, int power, TensorView result) override {
    run(stream, memory_bound(Line::gradients, bytes_of({x}), x.numel() == 0 ? 0 : 2),
        [&] { b.reduce().sum_powers(stream, x, power, result); });
  }
  void max_abs(Stream& stream, ConstTensorView x, TensorView result) override {
    run(stream, memory_bound(Line::gradients, bytes_of({x}), x.numel() == 0 ? 0 : 2),
        [&] { b.reduce().max_abs(stream, x, result); });
  }
  void count_zeros(Stream& stream, ConstTensorView x, TensorView result) override {
    run(stream, memory_bound(Line::gradients, bytes_of({x}), x.numel() == 0 ? 0 : 2),
        [&] { b.reduce().count_zeros(stream, x, result); });
  }

  void rotate(Stream& stream, const RotaryEmbedding& rotary, const RotaryHeads& x, Rotation rotation) override {
    const double numel = static_cast<double>(x.rows * x.batch * x.heads * rotary.channels);
    run(stream, memory_bound(Line::embedding, 2 * numel * static_cast<double>(size_of(x.data.data.dtype()))),
        [&] { b.rotary().rotate(stream, rotary, x, rotation); });
  }
};

ObservedBackend::ObservedBackend(Backend& inner)
    : inner_(inner), kernels_(std::make_shared<Kernels>(inner)), families_{kernels_, kernels_, kernels_,
                                                                           kernels_, kernels_, kernels_,
                                                                           kernels_, kernels_, kernels_} {}
ObservedBackend::~ObservedBackend() = default;

void ObservedBackend::observe(CallObserver* observer) { kernels_->observer = observer; }
void ObservedBackend::set_logits_columns(std::int64_t columns) { kernels_->logits_columns = columns; }

void ObservedBackend::copy_from_host(Stream& stream, ConstTensorView host, TensorView device) {
  kernels_->run(stream, memory_bound(Line::inputs, bytes_of({host})),
                [&] { inner_.copy_from_host(stream, host, device); });
}
void ObservedBackend::copy_to_host(Stream& stream, ConstTensorView device, TensorView host) {
  kernels_->run(stream, memory_bound(Line::results, bytes_of({device})),
                [&] { inner_.copy_to_host(stream, device, host); });
}

GraphRecorder& ObservedBackend::recorder() const {
  auto* recorder = dynamic_cast<GraphRecorder*>(&inner_);
  TRIREME_CHECK(recorder != nullptr, ConfigError, "the backend {} has no graphs", inner_.name());
  return *recorder;
}
std::unique_ptr<Graph> ObservedBackend::record(const std::function<void()>& enqueue) {
  return recorder().record(enqueue);
}
void ObservedBackend::copy_within(Stream& stream, ConstTensorView from, TensorView to) {
  kernels_->run(stream, memory_bound(Line::copies, bytes_of({from, to})),
                [&] { recorder().copy_within(stream, from, to); });
}
std::size_t ObservedBackend::launches() const {
  const auto* recorder = dynamic_cast<const GraphRecorder*>(&inner_);
  return recorder == nullptr ? 0 : recorder->launches();
}

}  // namespace trireme::plan
