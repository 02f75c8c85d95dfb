#pragma once

#include <optional>
#include <span>

#include "src/backend/kernels/fp8.hpp"
#include "src/backend/kernels/kernel_family.hpp"

namespace trireme {

/// How the epilogue of a product is computed: its bias, activation or bias gradient.
enum class EpilogueForm {
  chosen,   ///< the one that the backend chooses
  fused,    ///< in the product's kernel, if the library supports it
  separate  ///< in a separate kernel
};

/// A product's result and what was there before.
enum class ProductSum {
  add,
  overwrite  ///< does not read what was there, which may be undefined
};

/// Factors and transpositions of a batch of products.
struct BatchedProduct {
  bool a_transposed = false;
  bool b_transposed = false;
  double alpha = 1;
  double beta = 0;
};

/// Calls function(i, first row, rows) for each of consecutive groups of rows that is not empty.
template <class Function>
void for_each_group(std::span<const std::int64_t> rows, const Function& function) {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < rows.size(); first += rows[i], ++i) {
    if (rows[i] > 0) function(i, first, rows[i]);
  }
}

/// Products of linear layers. Weights are [out, in], row-major. T is the training type, A its accumulation type
/// (fp64 for fp64, else fp32). Sums are accumulated in A. Stream-ordered; the same inputs give the same bits.
/// Outputs may not overlap inputs. With `fp8` the operands of a product are rounded, and with a source computed first;
/// a bias, its gradient and an activation are computed as without.
class GemmKernels : public KernelFamily<GemmKernels> {
 public:
  using KernelFamily::KernelFamily;

  /// z = x w^T + bias;  y = activation(z).
  /// x [n, in] T; w [out, in] T; bias [out] T or empty; pre_activation [n, out] T receives z if there is an activation
  /// (empty: z is not kept); y [n, out] T. Overwrites.
  virtual void linear(Stream& stream, ConstTensorView x, ConstTensorView w, ConstTensorView bias, Activation activation,
                      TensorView pre_activation, TensorView y, const std::optional<Fp8Product>& fp8 = {}) {
    const bool activates = activation != Activation::none, keeps = activates && pre_activation;
    const Operands operands(x, w, fp8);
    const ProductCall product{.m = rows_of(x.shape()),
                              .n = y.shape().back(),
                              .k = x.shape().back(),
                              .bytes = bytes_of({y, keeps ? pre_activation : TensorView()}) + operands.bytes,
                              .fp8 = fp8.has_value(),
                              .rounded = operands.rounded,
                              .rounded_bytes = operands.rounded_bytes,
                              .end = activates ? ProductEnd::activation
                                     : bias    ? ProductEnd::bias
                                               : ProductEnd::none,
                              .can_fuse = !activates || activation == Activation::gelu_tanh,
                              .end_bytes = bytes_of({y, y, keeps ? y : TensorView()}),
                              .result = y};
    pass_on(&GemmKernels::linear, stream,
            {.kind = KernelKind::forward, .product = product, .extents = {.fp8_bytes = operands.scratch_bytes}}, x, w,
            bias, activation, pre_activation, y, fp8);
    note_copies(fp8);
  }

  /// dx = dy w, times activation'(pre_activation) element by element if there is an activation: dx is then the gradient
  /// before the activation of the layer below. dy [n, out] T; w [out, in] T; pre_activation [n, in] T or empty; dx [n,
  /// in] T. Overwrites.
  virtual void linear_backward_input(Stream& stream, ConstTensorView dy, ConstTensorView w, Activation activation,
                                     ConstTensorView pre_activation, TensorView dx,
                                     const std::optional<Fp8Product>& fp8 = {}) {
    const bool ends = activation != Activation::none;
    const Operands operands(dy, w, fp8);
    const ProductCall product{.m = rows_of(dy.shape()),
                              .n = dx.shape().back(),
                              .k = dy.shape().back(),
                              .bytes = bytes_of({dx, ends ? pre_activation : ConstTensorView()}) + operands.bytes,
                              .fp8 = fp8.has_value(),
                              .rounded = operands.rounded,
                              .rounded_bytes = operands.rounded_bytes,
                              .end = ends ? ProductEnd::activation_backward : ProductEnd::none,
                              .can_fuse = activation == Activation::gelu_tanh,
                              .end_bytes = bytes_of({dx, dx, pre_activation}),
                              .result = dx};
    pass_on(&GemmKernels::linear_backward_input, stream,
            {.kind = KernelKind::input_gradient, .product = product, .extents = {.fp8_bytes = operands.scratch_bytes}},
            dy, w, activation, pre_activation, dx, fp8);
    note_copies(fp8);
  }

  /// dw += dy^T x, or dw = dy^T x by `sum`;  dbias += sum of dy over rows.
  /// dy [n, out] T; x [n, in] T; dw [out, in] A; dbias [out] A or empty, which accumulates.
  virtual void linear_backward_weight(Stream& stream, ConstTensorView dy, ConstTensorView x, TensorView dw,
                                      TensorView dbias, ProductSum sum = ProductSum::add,
                                      const std::optional<Fp8Product>& fp8 = {}) {
    const Operands operands(dy, x, fp8, dbias);
    const ProductCall product{.m = dy.shape().back(),
                              .n = x.shape().back(),
                              .k = rows_of(dy.shape()),
                              .bytes = bytes_of({dw, sum == ProductSum::add ? dw : TensorView()}) + operands.bytes,
                              .fp8 = fp8.has_value(),
                              .rounded = operands.rounded,
                              .rounded_bytes = operands.rounded_bytes,
                              .beside = collects_ && collected_ > 0,
                              .end = operands.sums_bytes > 0 ? ProductEnd::rounded_bias_gradient
                                     : dbias                 ? ProductEnd::bias_gradient
                                                             : ProductEnd::none,
                              .end_bytes = operands.sums_bytes > 0 ? operands.sums_bytes : bytes_of({dy}),
                              .result = dw};
    KernelExtents extents = sums_of(dy, {dbias});
    extents.weight_gradient = dw.numel();
    extents.fp8_bytes = operands.scratch_bytes;
    if (collects_) {
      extents.groups = ++collected_;
      extents.fp8_bytes = collected_scratch_bytes_ += operands.scratch_bytes;
    }
    pass_on(&GemmKernels::linear_backward_weight, stream,
            {.kind = KernelKind::weight_gradient, .product = product, .extents = extents}, dy, x, dw, dbias, sum, fp8);
    note_copies(fp8);
  }

  /// From here to `run_collected` the products of linear_backward_weight may wait for it, which runs them beside each
  /// other: small ones share the device. Operands, copies and results stay as they are. The bits are the same. A
  /// backend may run each at once, and an observed one does.
  virtual void collect_weight_gradients() {
    collects_ = true;
    collected_ = collected_scratch_bytes_ = 0;
  }
  virtual void run_collected(Stream&) { collects_ = false; }

  /// Products of consecutive groups of rows, as of experts: group i has the next rows[i] of R rows, which may be none,
  /// and a weight of its own. Each result has the bits of its product alone. An observer is shown the products one by
  /// one, and they then run so.
  ///
  /// y = x w[i]^T. x [R, in] T; w[i] [out, in] T; y [R, out] T. Overwrites.
  virtual void grouped_linear(Stream& stream, std::span<const std::int64_t> rows, ConstTensorView x,
                              std::span<const TensorView> w, TensorView y) {
    for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      linear(stream, x.rows(first, count), w[i], {}, Activation::none, {}, y.rows(first, count));
    });
  }
  /// dx = dy w[i]. dy [R, out] T; w[i] [out, in] T; dx [R, in] T. Overwrites.
  virtual void grouped_backward_input(Stream& stream, std::span<const std::int64_t> rows, ConstTensorView dy,
                                      std::span<const TensorView> w, TensorView dx) {
    for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      linear_backward_input(stream, dy.rows(first, count), w[i], Activation::none, {}, dx.rows(first, count));
    });
  }
  /// dw[i] += dy^T x, or dw[i] = dy^T x by sums[i]; all are added if `sums` is empty. A group without rows leaves dw[i]
  /// unchanged. dy [R, out] T; x [R, in] T; dw[i] [out, in] A.
  virtual void grouped_backward_weight(Stream& stream, std::span<const std::int64_t> rows, ConstTensorView dy,
                                       ConstTensorView x, std::span<const TensorView> dw,
                                       std::span<const ProductSum> sums = {}) {
    for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      linear_backward_weight(stream, dy.rows(first, count), x.rows(first, count), dw[i], {}, sum_of(sums, i));
    });
  }

  /// d[i] = alpha op(a[i]) op(b[i]) + beta c[i] for each matrix i of a batch; op transposes as `product` says.
  /// op(a) [batch, m, k], op(b) [batch, k, n], c, d [batch, m, n], all T; c is empty if beta is 0. Overwrites d,
  /// rounded once. Part of the optimizer's line.
  virtual void batched(Stream& stream, const BatchedProduct& product, ConstTensorView a, ConstTensorView b,
                       ConstTensorView c, TensorView d) {
    pass_on(&GemmKernels::batched, stream,
            {.kind = KernelKind::optimizer,
             .product = ProductCall{.m = d.shape()[1],
                                    .n = d.shape()[2],
                                    .k = a.shape()[product.a_transposed ? 1 : 2],
                                    .batch = d.shape()[0],
                                    .bytes = bytes_of({a, b, c, d}),
                                    .result = d}},
            product, a, b, c, d);
  }

  /// With `repeated`, until it is called again, products take algorithms that were not chosen by their times: ranks
  /// that multiply the same operands get the same bits. See `RepeatedProducts`.
  virtual void set_repeated(bool repeated) {
    if (inner() != nullptr) inner()->set_repeated(repeated);
  }

  /// Sets the form of the epilogues of later products, for tests of each. In forms other than `chosen` the library's
  /// first suggestion is taken. Returns false, and changes nothing, on a backend with only one form.
  virtual bool set_epilogue_form(EpilogueForm form) {
    return inner() == nullptr ? form == EpilogueForm::chosen : inner()->set_epilogue_form(form);
  }
  /// Returns whether the epilogue of the latest product was fused into it.
  virtual bool latest_epilogue_is_fused() const { return inner() != nullptr && inner()->latest_epilogue_is_fused(); }
  /// Stops fusing the latest product's kind of epilogue, in products of all shapes: for forms found to be wrong.
  virtual void separate_latest_epilogue() {
    if (inner() != nullptr) inner()->separate_latest_epilogue();
  }

 private:
  /// Costs of a product's operands.
  struct Operands {
    /// `sums`: those of a over rows, if any; the kernel that rounds a makes them.
    Operands(ConstTensorView a, ConstTensorView b, const std::optional<Fp8Product>& fp8, ConstTensorView sums = {}) {
      if (!fp8) {
        bytes = bytes_of({a, b});
        return;
      }
      const bool has_sums = sums && fp8->first.makes_sums();
      if (has_sums) sums_bytes = static_cast<double>(fp8_sums_bytes(rows_of(a.shape()), a.shape().back()));
      add(a, fp8->first, has_sums);
      add(b, fp8->second, false);
    }
    void add(ConstTensorView x, const Fp8Operand& operand, bool has_sums) {
      const auto size = static_cast<double>(x.numel());
      const std::int64_t rows = rows_of(x.shape()), columns = x.shape().back();
      bytes += size;
      if (operand.copy != nullptr && operand.copy->made) return;
      const bool sums = has_sums || (operand.copy != nullptr && operand.copy->has_sums);
      const std::int64_t of_sums = sums ? fp8_sums_bytes(rows, columns) : 0;
      rounded += 1;
      rounded_bytes += bytes_of({x, operand.source.pre_activation}) + (operand.copy != nullptr ? 2 : 1) * size +
                       static_cast<double>(of_sums);
      if (operand.copy == nullptr) scratch_bytes += fp8_form_bytes(rows, columns, !operand.amax) + of_sums;
    }
    double bytes = 0, rounded_bytes = 0, sums_bytes = 0;
    int rounded = 0;
    std::int64_t scratch_bytes = 0;
  };
  bool collects_ = false;
  std::int64_t collected_ = 0, collected_scratch_bytes_ = 0;

  /// As the product does, in rehearsals too.
  static void note_copies(const std::optional<Fp8Product>& fp8) {
    if (!fp8) return;
    for (Fp8Copy* copy : {fp8->first.copy, fp8->second.copy}) {
      if (copy != nullptr) copy->made = true;
    }
  }

 protected:
  static ProductSum sum_of(std::span<const ProductSum> sums, std::size_t group) {
    return sums.empty() ? ProductSum::add : sums[group];
  }
};

/// Scope of products that all tensor ranks compute from the same operands, and that must have the same bits on all:
/// their results decide where tokens go, or change weights that no sum joins.
class RepeatedProducts {
 public:
  RepeatedProducts(GemmKernels& gemm, bool are_repeated) : gemm_(gemm) { gemm_.set_repeated(are_repeated); }
  ~RepeatedProducts() { gemm_.set_repeated(false); }
  RepeatedProducts& operator=(RepeatedProducts&&) = delete;

 private:
  GemmKernels& gemm_;
};

}  // namespace trireme
