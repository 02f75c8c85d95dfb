// Every hand-written kernel through the CUDA backend, against the CPU backend in fp64. On a GPU the shapes are those of
// GPT-2 124M, of 1.2B and of a TP-8 rank of 8.3B, on the fakes small ones. Compares relative errors of entire tensors.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <thread>

#include "src/backend/cpu/cpu_backend.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::test {
namespace {

struct Model {
  std::int64_t s = 0, b = 0, h = 0, heads = 0, d = 0, f = 0, v = 0;
};
/// Also true for slow tools that watch every access of a GPU.
bool shapes_are_small() { return !is_real_gpu() || std::getenv("TRIREME_TEST_SMALL") != nullptr; }
std::vector<Model> models() {
  // Each head size has its own kernels.
  if (shapes_are_small()) {
    return {{9, 2, 128, 2, 64, 40, 67},
            {70, 1, 96, 1, 96, 32, 35},
            {33, 2, 200, 2, 128, 48, 131},
            {17, 1, 64, 1, 192, 16, 40}};
  }
  return {{1024, 2, 768, 12, 64, 3072, 50304},
          {1024, 2, 1536, 16, 96, 6144, 51200},
          {1024, 2, 3072, 4, 96, 1536, 6400},
          {1024, 2, 1024, 4, 192, 1024, 6400}};
}

/// Random numbers in host memory, drawn once for both sides of a comparison.
class Inputs {
 public:
  Inputs(Backend& cpu, std::uint64_t seed) : cpu_(cpu), seed_(seed) {}
  std::uint64_t seed() const { return seed_; }

  /// Tensor `number`: uniform in [low, high), rounded to `dtype`.
  ConstTensorView draw(std::uint64_t number, DType dtype, const Shape& shape, double low, double high) {
    Tensor& tensor = drawn_[number];
    if (tensor.view()) return tensor;
    Tensor wide(cpu_, DType::fp32, shape);
    float* values = wide.view().as<float>();
    const double spacing = (high - low) * 0x1p-53;
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      values[i] = static_cast<float>(low + spacing * static_cast<double>(splitmix64(seed_ + number, i) >> 11));
    }
    if (dtype == DType::fp32) {
      tensor = std::move(wide);
    } else {
      tensor = Tensor(cpu_, dtype, shape);
      cpu_.elementwise().convert(cpu_.compute_stream(), wide, tensor);
      cpu_.compute_stream().synchronize();
    }
    return tensor;
  }

 private:
  Backend& cpu_;
  std::uint64_t seed_;
  std::map<std::uint64_t, Tensor> drawn_;
};

/// Both sides of a comparison: `run` is called with each, and stores what it computed in `results`.
struct Side {
  Backend& b;
  Inputs& inputs;
  DType training, type, accumulation;  ///< inputs are rounded to `training`, stored as `type`
  std::vector<Tensor> results{};       ///< copies in host memory

  Stream& stream() const { return b.compute_stream(); }
  Tensor input(const Shape& shape, std::uint64_t number, double low = -1, double high = 1) const {
    return make(type, training, shape, number, low, high);
  }
  /// Random values of the accumulation type; not rounded.
  Tensor wide(const Shape& shape, std::uint64_t number, double low = -1, double high = 1) const {
    return make(accumulation, DType::fp32, shape, number, low, high);
  }
  Tensor output(const Shape& shape) const { return poisoned(type, shape); }
  Tensor wide_output(const Shape& shape) const { return poisoned(accumulation, shape); }
  Tensor samples(std::int64_t count) const {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), std::int64_t{5} << 32);
    return samples_tensor(b, numbers);
  }
  Tensor tokens(std::int64_t count, std::int64_t below) const {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(splitmix64(inputs.seed(), i) % static_cast<std::uint64_t>(below));
    }
    return make_tensor(b, {count}, ids);
  }
  void result(ConstTensorView tensor) {
    const Tensor& host = results.emplace_back(b.host_memory(), tensor.dtype(), tensor.shape());
    b.copy_to_host(stream(), tensor, host);
    stream().synchronize();
  }

 private:
  Tensor make(DType stored, DType rounded, const Shape& shape, std::uint64_t number, double low, double high) const {
    const ConstTensorView drawn = inputs.draw(number, rounded, shape, low, high);
    Tensor tensor(b, stored, shape);
    if (b.memory_is_host())
      b.elementwise().convert(stream(), drawn, tensor);
    else
      b.copy_from_host(stream(), drawn, tensor);
    stream().synchronize();
    return tensor;
  }
  /// random_tensor of random_tensor.hpp, filled on the device.
  Tensor poisoned(DType dtype, const Shape& shape) const {
    Tensor tensor(b, dtype, shape);
    b.elementwise().fill(stream(), std::nan(""), tensor);
    return tensor;
  }
};

class GpuKernels : public GpuBackendTest {
 protected:
  void SetUp() override {
    GpuBackendTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) gpu_ = make_gpu_backend({});
  }
  /// Runs `run(side, model)` on both backends for every type and model, and compares all results.
  template <class Run>
  void compare(Operation operation, Run&& run, const std::vector<Model>& shapes = models()) {
    const std::uint64_t seed = run_seed();
    SCOPED_TRACE(fmt::format("TRIREME_TEST_SEED={}", seed));
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      for (const Model& model : shapes) {
        Inputs inputs(*cpu_, seed);
        Side gpu{*gpu_, inputs, dtype, dtype, DType::fp32}, exact{*cpu_, inputs, dtype, DType::fp64, DType::fp64};
        run(gpu, model);
        run(exact, model);
        ASSERT_EQ(gpu.results.size(), exact.results.size());
        // Tensor cores take factors of 16 bits, so fp32 does not use them.
        const bool plain = dtype == DType::fp32 && operation == Operation::rounded_sum;
        const Tolerance allowed = tolerance(dtype, plain ? Operation::sum : operation, DType::fp32);
        for (std::size_t i = 0; i < gpu.results.size(); ++i) {
          const Tensor& expected = exact.results[i];
          const double norm = norm_of(expected);
          const Tensor difference(*cpu_, DType::fp64, expected.view().shape());
          Stream& stream = cpu_->compute_stream();
          cpu_->elementwise().convert(stream, gpu.results[i], difference);
          cpu_->elementwise().scale(stream, -1, difference);
          cpu_->elementwise().add(stream, expected, difference);
          EXPECT_LE(norm_of(difference), (allowed.relative + allowed.absolute) * norm)
              << name_of(dtype) << ", hidden " << model.h << ", result " << i;
        }
      }
    }
  }

  /// The root of the sum of squares of a tensor in host memory.
  double norm_of(ConstTensorView x) {
    const Tensor sum = make_tensor(*cpu_, DType::fp64, {1}, {0});
    cpu_->reduce().sum_squares(cpu_->compute_stream(), x, sum);
    return std::sqrt(values_of(*cpu_, sum)[0]);
  }

  std::unique_ptr<Backend> cpu_ = cpu::make_backend(std::max(4, static_cast<int>(std::thread::hardware_concurrency())));
  std::unique_ptr<Backend> gpu_;
};

TEST_F(GpuKernels, Norms) {
  compare(Operation::sum, [](Side& t, const Model& m) {
    const Shape shape{m.s, m.b, m.h}, rows{m.s * m.b};
    const Tensor x = t.input(shape, 1), weight = t.input({m.h}, 2), bias = t.input({m.h}, 3);
    const Tensor residual = t.input(shape, 4), samples = t.samples(m.b);
    const Tensor sum = t.output(shape), y = t.output(shape), mean = t.wide_output(rows), rstd = t.wide_output(rows);
    const Dropout dropout(0.1, 1, 1, DropoutSite::mlp_output, samples.view().as<std::int64_t>());
    t.b.norm().bias_dropout_add_norm(t.stream(), x, bias, residual, dropout, weight, bias, 1e-5, sum, y, {mean, rstd});
    t.result(sum);
    // From here on of inputs that both have alike.
    const Tensor z = t.output(shape), dx = t.output(shape), dy = t.input(shape, 5);
    const Tensor dweight = t.wide({m.h}, 6), dbias = t.wide({m.h}, 7);
    t.b.norm().normalise(t.stream(), x, weight, bias, 1e-5, z, {mean, rstd});
    t.b.norm().normalise_backward(t.stream(), dy, x, weight, {mean, rstd}, residual, dx, dweight, dbias);
    for (const Tensor* tensor : {&z, &mean, &rstd, &dx, &dweight, &dbias}) t.result(*tensor);
  });
}

TEST_F(GpuKernels, Elementwise) {
  compare(Operation::elementwise, [](Side& t, const Model& m) {
    const Shape shape{m.s, m.b, m.h}, wide{m.s, m.b, m.f};
    const Tensor dsum = t.input(shape, 1), dx = t.output(shape), samples = t.samples(m.b);
    const Dropout dropout(0.1, 1, 1, DropoutSite::mlp_output, samples.view().as<std::int64_t>());
    t.b.elementwise().bias_dropout_add_backward(t.stream(), dsum, dropout, dx, {});
    t.result(dx);
    const Tensor gate_up = t.input({m.s, m.b, 2 * m.f}, 2, -3, 3), y = t.output(wide), dy = t.input(wide, 3);
    const Tensor dgate_up = t.output({m.s, m.b, 2 * m.f}), activated = t.output(wide);
    t.b.elementwise().glu(t.stream(), Activation::silu, gate_up, y);
    t.b.elementwise().glu_backward(t.stream(), Activation::silu, dy, gate_up, dgate_up);
    t.b.elementwise().activate(t.stream(), Activation::gelu_tanh, dy, activated);
    for (const Tensor* tensor : {&y, &dgate_up, &activated}) t.result(*tensor);
  });
}

TEST_F(GpuKernels, Embedding) {
  compare(Operation::sum, [](Side& t, const Model& m) {
    const std::int64_t n = m.s * m.b;
    const Tensor ids = t.tokens(n, m.v), table = t.input({m.v, m.h}, 1), y = t.output({n, m.h});
    const Tensor dy = t.input({n, m.h}, 2), dtable = t.wide({m.v, m.h}, 3);
    t.b.embedding().lookup(t.stream(), ids, table, 0, y);
    t.b.embedding().lookup_backward(t.stream(), ids, dy, 0, dtable);
    t.result(y);
    t.result(dtable);
  });
}

TEST_F(GpuKernels, CrossEntropy) {
  compare(Operation::sum, [](Side& t, const Model& m) {
    const Shape rows{m.s};
    const VocabularyShard shard{0, m.v - 3};  // padded
    const Tensor logits = t.input({m.s, m.v}, 1, -5, 5), targets = t.tokens(m.s, m.v - 3);
    const Tensor maximum = t.wide_output(rows), sum = t.wide_output(rows), target = t.wide_output(rows);
    const Tensor weights = t.wide(rows, 2, 0.5, 1), losses = t.wide_output(rows);
    CrossEntropyKernels& kernels = t.b.cross_entropy();
    kernels.statistics(t.stream(), logits, shard, targets, maximum, sum, target);
    kernels.rescale(t.stream(), maximum, maximum, sum);
    kernels.losses(t.stream(), maximum, sum, target, weights, losses);
    kernels.backward(t.stream(), shard, maximum, sum, targets, weights, 6, logits);
    for (const Tensor* tensor : {&losses, &logits}) t.result(*tensor);
  });
}

/// Causal, or of samples of these lengths, the first without padding.
void run_attention(Side& t, const Model& m, const std::vector<std::int32_t>& lengths = {}) {
  const std::int64_t row = m.heads * m.d;
  const Shape shape{m.s, m.b, m.heads, m.d}, rows{m.b, m.heads, m.s};
  const Tensor q = t.input(shape, 1, -2, 2), k = t.input(shape, 2, -2, 2), v = t.input(shape, 3);
  const Tensor dout = t.input(shape, 4), given = t.input(shape, 5), samples = t.samples(m.b);
  const Tensor out = t.output(shape), lse = t.wide_output(rows), row_dot = t.wide_output(rows);
  const Tensor dq = t.output(shape), dk = t.output(shape), dv = t.output(shape);
  const Tensor of_samples = make_tensor(t.b, {static_cast<std::int64_t>(lengths.size())}, lengths);
  const AttentionProblem problem{
      .queries = m.s,
      .keys = m.s,
      .batch = m.b,
      .heads = m.heads,
      .kv_heads = m.heads,
      .head_dim = m.d,
      .scale = 1 / std::sqrt(static_cast<double>(m.d)),
      .causal = lengths.empty(),
      .lengths = lengths.empty() ? nullptr : of_samples.view().as<std::int32_t>(),
      .dropout = {0.1, 1, 1, DropoutSite::attention_scores, samples.view().as<std::int64_t>()}};
  const auto heads = [&](TensorView x) { return Heads{x, m.b * row, row, m.d}; };
  AttentionKernels& kernels = t.b.attention();
  kernels.attention(t.stream(), problem, heads(q), heads(k), heads(v), heads(out), lse);
  // Backward takes an `out` that both have alike.
  kernels.attention_backward(t.stream(), problem, heads(dout), heads(q), heads(k), heads(v), heads(given), lse, row_dot,
                             heads(dq), heads(dk), heads(dv));
  for (const Tensor* tensor : {&out, &dq, &dk, &dv}) t.result(*tensor);
  // Padding has minus infinity, which has no norm.
  t.result(lse.view().flat(0, (lengths.empty() ? m.b : 1) * m.heads * m.s));
}

TEST_F(GpuKernels, Attention) {
  compare(Operation::rounded_sum, [](Side& t, const Model& m) { run_attention(t, m); });
}

// BERT's, whose batches hold sentences of any length.
TEST_F(GpuKernels, AttentionOfPaddedSamples) {
  const bool small = shapes_are_small();
  const std::int64_t s = small ? 70 : 512, heads = small ? 1 : 16;
  std::vector<std::int32_t> lengths = {static_cast<std::int32_t>(s), 1, 31, 33, 63, 64, 65};
  if (!small) lengths.insert(lengths.end(), {128, 200, 511});
  lengths.push_back(0);
  const Model bert{.s = s, .b = static_cast<std::int64_t>(lengths.size()), .heads = heads, .d = 64};
  compare(Operation::rounded_sum, [&](Side& t, const Model& m) { run_attention(t, m, lengths); }, {bert});
}

TEST_F(GpuKernels, OptimizersAndSums) {
  compare(Operation::sum, [](Side& t, const Model& m) {
    const Shape shape{m.h * m.f + 1};
    const Tensor gradient = t.wide(shape, 1), w = t.wide(shape, 2), mean = t.wide(shape, 3);
    const Tensor square = t.wide(shape, 4, 0, 1), rounded = t.output(shape),
                 sum = poisoned_tensor(t.b, DType::fp64, {1});
    const AdamWStep step{.rates = {{{1e-3, 0.1}}}, .update = 7, .gradient_scale = 0.5};
    t.b.optimizer().adamw(t.stream(), step, {}, gradient, w, mean, square, rounded);
    const SgdStep sgd{.rates = {{{1e-3, 0.1}}}, .gradient_scale = 0.5};
    t.b.optimizer().sgd(t.stream(), sgd, {}, gradient, w, mean, rounded);
    t.b.elementwise().fill(t.stream(), 0, sum);
    t.b.reduce().sum_squares(t.stream(), gradient, sum);
    for (const Tensor* tensor : {&w, &mean, &square, &rounded, &sum}) t.result(*tensor);
  });
}

}  // namespace
}  // namespace trireme::test
