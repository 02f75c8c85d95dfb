#include "cuda/kernels/gemm.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/cublaslt/product.hpp"
#include "cuda/cublaslt/trial_operands.hpp"
#include "cuda/kernels/epilogue.hpp"
#include "cuda/kernels/fp8_operand.hpp"
#include "src/backend/kernels/shape_checks.hpp"
#include "src/base/log.hpp"

namespace trireme::cuda {
namespace {

/// A product with its epilogue. A row-major [n, out] tensor is a column-major [out, n] matrix, so the operands swap
/// roles: y^T = w x^T.
struct Task {
  KernelKind kind = KernelKind::forward;
  ProductShape shape;
  ProductOperands operands;
  const void* bias = nullptr;  // linear
  Activation activation = Activation::none;
  void* pre_activation = nullptr;  // written by linear, read by linear_backward_input
  const void* dy = nullptr;        // linear_backward_weight
  float* dbias = nullptr;
  const float* sums = nullptr;  // Fp8Forms::sums of dy, or null
  bool repeated = false;        // by other ranks, which must take the same algorithm
};

/// The largest power of two, at most 64, that divides all addresses, also those of a batch's later matrices. Arenas and
/// parameter buffers align tensors to 64 bytes. Larger alignments depend on a tensor's placement: layers and
/// micro-batches would measure one product up to three times, and choose different algorithms.
int alignment_of(const Task& task) {
  std::uintptr_t bits = 64;
  const ProductOperands& on = task.operands;
  for (const void* pointer : {on.a, on.b, static_cast<const void*>(on.d), on.c, task.bias,
                              static_cast<const void*>(task.pre_activation), static_cast<const void*>(task.dbias)}) {
    bits |= reinterpret_cast<std::uintptr_t>(pointer);
  }
  if (const ProductShape& shape = task.shape; shape.batch > 1) {
    const std::size_t in = size_of(shape.in), out = size_of(shape.out);
    bits |= static_cast<std::size_t>(shape.m * shape.k) * in | static_cast<std::size_t>(shape.k * shape.n) * in |
            static_cast<std::size_t>(shape.m * shape.n) * out;
  }
  return 1 << std::countr_zero(bits);
}

bool is_weight_gradient(const ProductShape& shape) { return shape.fp8 ? shape.fp8->over_rows : shape.b_transposed; }

/// The product measured to choose the algorithm: its rows are rounded down to three binary digits. Weight gradients
/// that add and those that overwrite share a measurement. A batch is measured as it is.
ProductShape class_of(ProductShape shape) {
  if (shape.batch > 0) return shape;
  std::int64_t& rows = is_weight_gradient(shape) ? shape.k : shape.n;
  const auto power_of_two = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rows)));
  rows -= rows % std::max<std::int64_t>(1, power_of_two / 4);
  if (is_weight_gradient(shape)) shape.accumulate = true;
  return shape;
}

constexpr std::size_t max_measurements = 256;
constexpr std::int64_t products_before_write = 1000;

class CublasLtGemm final : public GemmKernels {
 public:
  CublasLtGemm(std::shared_ptr<Device> device, std::shared_ptr<DeviceMemory> memory, std::unique_ptr<WorkTimer> timer,
               const GemmOptions& options)
      : memory_(memory),
        tuner_(std::move(timer)),
        deterministic_(options.deterministic),
        cache_(options.deterministic ? "" : options.cache_file,
               device->location().device_name + (options.allow_tf32 ? ", TF32" : ""), Products::library_version()),
        products_(device, std::move(memory), options.allow_tf32),
        device_(std::move(device)) {}

  void linear(Stream& stream, ConstTensorView x, ConstTensorView w, ConstTensorView bias, Activation activation,
              TensorView pre_activation, TensorView y, const std::optional<Fp8Product>& fp8) override {
    Task task = forward_task(x, w, bias, activation, pre_activation, y);
    run_rounded(stream, task, x, w, fp8);
  }

  void linear_backward_input(Stream& stream, ConstTensorView dy, ConstTensorView w, Activation activation,
                             ConstTensorView pre_activation, TensorView dx,
                             const std::optional<Fp8Product>& fp8) override {
    Task task = input_task(dy, w, activation, pre_activation, dx);
    run_rounded(stream, task, dy, w, fp8);
  }

  void linear_backward_weight(Stream& stream, ConstTensorView dy, ConstTensorView x, TensorView dw, TensorView dbias,
                              ProductSum sum, const std::optional<Fp8Product>& fp8) override {
    Task task = weight_task(dy, x, dw, dbias, sum);
    if (!collected_) return run_rounded(stream, task, dy, x, fp8);
    RoundedOperands operands = round(cuda_stream(stream), task, dy, x, fp8);
    collected_->push_back({task, std::move(operands)});
  }

  void collect_weight_gradients() override { collected_.emplace(); }
  void run_collected(Stream& stream) override {
    const std::vector<Collected> all = std::exchange(collected_, std::nullopt).value();
    std::vector<Task> tasks;
    for (const Collected& collected : all) tasks.push_back(collected.task);
    run_beside(cuda_stream(stream), tasks);
  }

  void grouped_linear(Stream& stream, std::span<const std::int64_t> rows, ConstTensorView x,
                      std::span<const TensorView> w, TensorView y) override {
    check_groups("grouped_linear", rows, x, w.size());
    run_groups(stream, rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      return forward_task(x.rows(first, count), w[i], {}, Activation::none, {}, y.rows(first, count));
    });
  }

  void grouped_backward_input(Stream& stream, std::span<const std::int64_t> rows, ConstTensorView dy,
                              std::span<const TensorView> w, TensorView dx) override {
    check_groups("grouped_backward_input", rows, dy, w.size());
    run_groups(stream, rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      return input_task(dy.rows(first, count), w[i], Activation::none, {}, dx.rows(first, count));
    });
  }

  void grouped_backward_weight(Stream& stream, std::span<const std::int64_t> rows, ConstTensorView dy,
                               ConstTensorView x, std::span<const TensorView> dw,
                               std::span<const ProductSum> sums) override {
    check_groups("grouped_backward_weight", rows, dy, dw.size());
    run_groups(stream, rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      return weight_task(dy.rows(first, count), x.rows(first, count), dw[i], {}, sum_of(sums, i));
    });
  }

  void batched(Stream& stream, const BatchedProduct& product, ConstTensorView a, ConstTensorView b, ConstTensorView c,
               TensorView d) override {
    check_batched(product, a, b, c, d);
    check_type(d.dtype());
    if (d.numel() == 0) return;
    Task task;
    task.shape = {.in = d.dtype(),
                  .out = d.dtype(),
                  .a_transposed = product.b_transposed,
                  .b_transposed = product.a_transposed,
                  .m = d.shape()[2],
                  .n = d.shape()[1],
                  .k = a.shape()[product.a_transposed ? 1 : 2],
                  .batch = static_cast<std::int32_t>(d.shape()[0])};
    task.operands = {.a = b.data(),
                     .b = a.data(),
                     .d = d.data(),
                     .c = product.beta == 0 ? nullptr : c.data(),
                     .alpha = static_cast<float>(product.alpha),
                     .beta = static_cast<float>(product.beta)};
    task.repeated = repeated_;
    run(cuda_stream(stream), task);
  }

  void set_repeated(bool repeated) override { repeated_ = repeated; }
  bool set_epilogue_form(EpilogueForm form) override {
    form_ = form;
    return true;
  }
  bool latest_epilogue_is_fused() const override { return latest_is_fused_; }
  void separate_latest_epilogue() override {
    if (latest_epilogue_ == Epilogue::none) return;
    separate_.insert(latest_epilogue_);
    measured_.clear();  // fused choices are replaced
    std::erase_if(choices_,
                  [&](const auto& entry) { return separate_.contains(std::get<ProductShape>(entry.first).epilogue); });
  }

 private:
  static Task forward_task(ConstTensorView x, ConstTensorView w, ConstTensorView bias, Activation activation,
                           TensorView pre_activation, TensorView y) {
    check_linear(x, w, bias, pre_activation, y);
    check_type(x.dtype());
    Task task;
    task.bias = bias.data();
    task.activation = activation;
    task.pre_activation = activation == Activation::none ? nullptr : pre_activation.data();
    task.shape = {.in = x.dtype(),
                  .out = x.dtype(),
                  .a_transposed = true,
                  .b_transposed = false,
                  .m = y.shape().back(),
                  .n = rows_of(x.shape()),
                  .k = x.shape().back(),
                  .epilogue = linear_epilogue(task)};
    task.operands = {.a = w.data(), .b = x.data(), .d = y.data()};
    return task;
  }

  static Task input_task(ConstTensorView dy, ConstTensorView w, Activation activation, ConstTensorView pre_activation,
                         TensorView dx) {
    check_linear_backward_input(dy, w, activation, pre_activation, dx);
    check_type(dy.dtype());
    Task task;
    task.kind = KernelKind::input_gradient;
    task.activation = activation;
    // cuBLASLt only reads it here.
    task.pre_activation = activation == Activation::none ? nullptr : const_cast<std::byte*>(pre_activation.data());
    task.shape = {.in = dy.dtype(),
                  .out = dy.dtype(),
                  .m = dx.shape().back(),
                  .n = rows_of(dy.shape()),
                  .k = dy.shape().back(),
                  .epilogue = activation == Activation::gelu_tanh ? Epilogue::dgelu : Epilogue::none};
    task.operands = {.a = w.data(), .b = dy.data(), .d = dx.data()};
    return task;
  }

  static Task weight_task(ConstTensorView dy, ConstTensorView x, TensorView dw, TensorView dbias, ProductSum sum) {
    check_linear_backward_weight(dy, x, dw, dbias);
    check_type(dy.dtype());
    Task task;
    task.kind = KernelKind::weight_gradient;
    task.dy = dy.data();
    task.dbias = dbias ? dbias.as<float>() : nullptr;
    task.shape = {.in = dy.dtype(),
                  .out = DType::fp32,
                  .a_transposed = false,
                  .b_transposed = true,
                  .m = x.shape().back(),
                  .n = dy.shape().back(),
                  .k = rows_of(dy.shape()),
                  .accumulate = sum == ProductSum::add,
                  .epilogue = dbias ? Epilogue::bias_gradient_b : Epilogue::none};
    task.operands = {.a = x.data(), .b = dy.data(), .d = dw.data()};
    return task;
  }

  /// Operands in FP8 of a task, if any.
  struct RoundedOperands {
    std::optional<OperandInFp8> first, second;
  };
  /// A task of linear_backward_weight that waits for run_collected.
  struct Collected {
    Task task;
    RoundedOperands operands;
  };

  void run_rounded(Stream& caller, Task& task, ConstTensorView first, ConstTensorView second,
                   const std::optional<Fp8Product>& fp8) {
    const RoundedOperands operands = round(cuda_stream(caller), task, first, second, fp8);
    run(cuda_stream(caller), task);
  }

  /// Rounds the kernel's operands `first` and `second` to FP8, if there is a rounding, and gives them to the task.
  RoundedOperands round(CudaStream& stream, Task& task, ConstTensorView first, ConstTensorView second,
                        const std::optional<Fp8Product>& fp8) {
    task.repeated = repeated_;
    RoundedOperands operands;
    if (!fp8) return operands;
    const bool by_blocks = !fp8->first.amax, is_weight = task.kind == KernelKind::weight_gradient;
    const Fp8Blocks vectors = by_blocks ? Fp8Blocks::vectors : Fp8Blocks::whole;
    const Fp8Blocks of_second = by_blocks && !is_weight ? Fp8Blocks::squares : vectors;
    // The gradient of an input sums over the weight's rows.
    const bool needs_sums = task.dbias != nullptr && fp8->first.makes_sums();
    const OperandInFp8& b =
        operands.first.emplace(stream, *memory_, first, fp8->first, fp8->margin, vectors, is_weight, needs_sums);
    const OperandInFp8& a = operands.second.emplace(stream, *memory_, second, fp8->second, fp8->margin, of_second,
                                                    task.kind != KernelKind::forward, false);
    if (needs_sums) task.sums = b.sums();
    task.shape.fp8 = Fp8Types{.a = fp8->second.format,
                              .b = fp8->first.format,
                              .a_blocks = of_second,
                              .b_blocks = vectors,
                              .over_rows = is_weight,
                              .fast_sums = task.kind == KernelKind::forward && !by_blocks};
    task.shape.a_transposed = true;
    task.shape.b_transposed = false;
    // The manual names the types of a bias alone; a bias' gradient would be that of the rounded numbers.
    if (task.shape.epilogue != Epilogue::bias || task.shape.out != DType::bf16) task.shape.epilogue = Epilogue::none;
    task.operands.a = a.codes();
    task.operands.a_scales = a.scales();
    task.operands.b = b.codes();
    task.operands.b_scales = b.scales();
    return operands;
  }

  /// Runs the task of each group with rows, beside each other.
  template <class MakeTask>
  void run_groups(Stream& stream, std::span<const std::int64_t> rows, const MakeTask& make_task) {
    std::vector<Task> tasks;
    for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      tasks.push_back(make_task(i, first, count));
      tasks.back().repeated = repeated_;
    });
    run_beside(cuda_stream(stream), tasks);
  }

  /// Runs the tasks on several streams between two points of `caller`. Products that must be measured run before, on
  /// `caller`, with no other beside them.
  void run_beside(CudaStream& caller, std::vector<Task>& all) {
    // As many as all may need: where none is measured, this may be recorded, and a graph allocates no memory.
    const std::size_t streams = std::min(all.size(), group_streams);
    while (streams > 1 && streams_.size() < streams) {
      streams_.push_back(std::make_unique<CudaStream>(device_));
      products_.workspace(*streams_.back());
    }
    std::vector<Task> tasks;
    for (Task& task : all) {
      if (is_measured_first(caller, task))
        run(caller, task);
      else
        tasks.push_back(task);
    }
    const std::size_t used = std::min(tasks.size(), group_streams);
    if (used <= 1) {
      for (Task& task : tasks) run(caller, task);
      return;
    }
    const std::unique_ptr<Event> ready = caller.record();
    for (std::size_t i = 0; i < used; ++i) streams_[i]->wait(*ready);
    for (std::size_t i = 0; i < tasks.size(); ++i) run(*streams_[i % used], tasks[i]);
    for (std::size_t i = 0; i < used; ++i) caller.wait(*streams_[i]->record());
  }

  /// Completes the shape by what the addresses and the GPU's other work determine.
  static void place(const CudaStream& stream, Task& task) {
    task.shape.alignment = alignment_of(task);
    task.shape.multiprocessors = stream.device().multiprocessors().for_product();
  }

  /// Returns whether run would measure algorithms.
  bool is_measured_first(const CudaStream& stream, Task& task) {
    place(stream, task);
    if (!takes_fastest(task) || choices_.contains({form_, task.repeated, task.shape})) return false;
    const std::string key = to_string(class_of(task.shape));
    return !cache_.find(key) && can_measure(stream, key);
  }

  /// Forward epilogue that cuBLASLt can fuse: its GELU is the tanh form.
  static Epilogue linear_epilogue(const Task& task) {
    if (task.activation == Activation::none) return task.bias == nullptr ? Epilogue::none : Epilogue::bias;
    if (task.activation != Activation::gelu_tanh) return Epilogue::none;
    if (task.pre_activation == nullptr) return task.bias == nullptr ? Epilogue::gelu : Epilogue::gelu_bias;
    return task.bias == nullptr ? Epilogue::gelu_aux : Epilogue::gelu_aux_bias;
  }

  /// The plain product, if other kernels run the epilogue.
  static ProductShape plain(ProductShape shape) {
    shape.epilogue = Epilogue::none;
    return shape;
  }

  /// Destination of a product without epilogue: in forward with an activation, the kept value before it.
  static void* plain_result(const Task& task) {
    const bool is_forward = task.kind == KernelKind::forward;
    return is_forward && task.pre_activation != nullptr ? task.pre_activation : task.operands.d;
  }

  static void check_type(DType dtype) {
    TRIREME_CHECK(dtype != DType::fp64, ConfigError, "fp64 runs on the CPU backend alone: use <backend> cpu");
  }

  void run(CudaStream& stream, Task& task) {
    ProductShape& shape = task.shape;
    latest_epilogue_ = shape.epilogue;
    latest_is_fused_ = false;
    if (shape.m == 0 || shape.n == 0 || shape.k == 0) {
      // cuBLASLt rejects empty matrices: the product is zero, and only the epilogue runs.
      const std::size_t size_bytes = static_cast<std::size_t>(shape.m * shape.n) * size_of(shape.out);
      if (!shape.accumulate && size_bytes > 0) {
        stream.device().check(cudaMemsetAsync(plain_result(task), 0, size_bytes, stream.handle()), "cudaMemsetAsync");
        stream.device().launched(stream.handle(), "cudaMemsetAsync");
      }
      run_epilogue(stream, task);
      return;
    }
    place(stream, task);
    const std::tuple key(form_, task.repeated, shape);
    if (const auto found = choices_.find(key); found != choices_.end()) {
      run_with(stream, task, found->second);
      if (++products_since_new_ == products_before_write) cache_.write();
    } else {
      choices_.emplace(key, run_first(stream, task));
      products_since_new_ = 0;
    }
  }

  bool takes_fastest(const Task& task) const {
    return !deterministic_ && !task.repeated && form_ == EpilogueForm::chosen;
  }

  Choice run_first(CudaStream& stream, const Task& task) {
    if (takes_fastest(task)) {
      const std::string key = to_string(class_of(task.shape));
      if (const auto kept = cache_.find(key); kept && try_to_run(stream, task, *kept)) return *kept;
      if (may_measure(stream, key)) {
        const std::optional<Choice> choice = fastest(stream, task);
        if (choice) cache_.keep(key, *choice);
        if (choice && try_to_run(stream, task, *choice)) return *choice;
      }
    }
    return first_that_runs(candidates(stream, task), [&](const Choice& choice) { run_with(stream, task, choice); });
  }

  /// Runs the product, or returns false if cuBLASLt refuses the algorithm. It may do so after its own check.
  bool try_to_run(CudaStream& stream, const Task& task, const Choice& choice) {
    if (!is_usable(task, choice)) return false;
    try {
      run_with(stream, task, choice);
      return true;
    } catch (const CublasError&) {
      return false;
    }
  }

  /// Returns whether a class can be measured now: once per run, up to a maximum, and not during graph capture, which
  /// executes nothing.
  bool can_measure(const CudaStream& stream, const std::string& key) const {
    return !is_recording(stream) && measured_.size() < max_measurements && !measured_.contains(key);
  }

  /// Likewise, and counts it.
  bool may_measure(const CudaStream& stream, const std::string& key) {
    if (!can_measure(stream, key)) return false;
    measured_.insert(key);
    if (measured_.size() == max_measurements) {
      log::warn("{} products were measured: further ones use cuBLASLt's first suggestion in this run",
                max_measurements);
    }
    return true;
  }

  static bool is_recording(const CudaStream& stream) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    stream.device().check(cudaStreamIsCapturing(stream.handle(), &capture), "cudaStreamIsCapturing");
    return capture != cudaStreamCaptureStatusNone;
  }

  /// Runs the fused product if `choice` has one, else the product and then its epilogue.
  void run_with(CudaStream& stream, const Task& task, const Choice& choice) {
    ProductOperands operands = task.operands;
    latest_is_fused_ = choice.fused;
    if (!choice.fused) {
      operands.d = plain_result(task);
      products_.run(stream, plain(task.shape), choice, operands);
      run_epilogue(stream, task);
      return;
    }
    operands.aux = task.pre_activation;
    if (task.shape.epilogue != Epilogue::bias_gradient_b) {
      operands.bias = const_cast<void*>(task.bias);
      products_.run(stream, task.shape, choice, operands);
      return;
    }
    // cuBLASLt overwrites the bias gradient, but gradients accumulate.
    const Buffer gradient = memory_->allocate_on(stream, static_cast<std::size_t>(task.shape.n) * sizeof(float));
    operands.bias = gradient.data();
    products_.run(stream, task.shape, choice, operands);
    add_rows(stream, 1, task.shape.n, reinterpret_cast<const float*>(gradient.data()), task.dbias);
  }

  void run_epilogue(CudaStream& stream, const Task& task) {
    const ProductShape& shape = task.shape;
    if (task.kind == KernelKind::weight_gradient) {
      if (task.dbias == nullptr) return;
      if (task.sums != nullptr)
        return add_rows(stream, (shape.k + fp8_block - 1) / fp8_block, shape.n, task.sums, task.dbias);
      const Buffer scratch = memory_->allocate_on(stream, column_sums_bytes(shape.k, shape.n));
      column_sums(stream, shape.in, shape.k, shape.n, task.dy, scratch.data(), task.dbias);
    } else if (task.kind == KernelKind::input_gradient) {
      if (task.activation == Activation::none) return;
      activation_backward(stream, shape.in, shape.m * shape.n, task.activation, task.pre_activation, task.operands.d);
    } else {
      if (task.bias == nullptr && task.activation == Activation::none) return;
      bias_activation(stream, shape.in, shape.n, shape.m, task.bias, task.activation, plain_result(task),
                      task.pre_activation != nullptr, task.operands.d);
    }
  }

  /// Returns whether cuBLASLt can fuse the epilogue. It does not check all of its documented rules for kept values.
  bool can_fuse(const Task& task) const {
    if (form_ == EpilogueForm::separate || separate_.contains(task.shape.epilogue)) return false;
    const bool supports_kept_values =
        task.pre_activation == nullptr || (task.shape.m % 8 == 0 && task.shape.alignment >= 16);
    return task.shape.epilogue != Epilogue::none && supports_kept_values;
  }

  /// Fused ones first.
  std::vector<Choice> candidates(CudaStream& stream, const Task& task) {
    std::vector<Choice> list;
    if (can_fuse(task)) list = products_.candidates(task.shape);
    std::ranges::copy(products_.candidates(plain(task.shape)), std::back_inserter(list));
    TRIREME_CHECK(!list.empty(), CublasError, "cuBLASLt has no algorithm for the product {}; {}", to_string(task.shape),
                  to_string(stream.device().location()));
    return list;
  }

  bool is_usable(const Task& task, const Choice& choice) {
    return choice.fused ? can_fuse(task) && products_.usable(task.shape, choice)
                        : products_.usable(plain(task.shape), choice);
  }

  /// Chooses the algorithm of the product's class by time; none if memory is insufficient for the trial runs.
  std::optional<Choice> fastest(CudaStream& stream, const Task& task) {
    Task trial = task;
    trial.shape = class_of(task.shape);
    ProductOperands operands = task.operands;
    operands.aux = task.pre_activation;
    try {
      TrialOperands rotated(stream, *memory_, trial.shape, operands);
      Buffer dbias;
      if (task.dbias != nullptr) {
        dbias = memory_->allocate_on(stream, static_cast<std::size_t>(task.shape.n) * sizeof(float));
        trial.dbias = reinterpret_cast<float*>(dbias.data());
      }
      return tuner_.fastest(stream, candidates(stream, trial), [&](const Choice& candidate) {
        trial.operands = rotated.next();
        trial.pre_activation = std::exchange(trial.operands.aux, nullptr);
        run_with(stream, trial, candidate);
      });
    } catch (const EnvironmentError& error) {
      log::warn("products such as {} use cuBLASLt's first suggestion, not its fastest: {}", to_string(trial.shape),
                error.what());
      return std::nullopt;
    }
  }

  std::shared_ptr<DeviceMemory> memory_;
  Tuner tuner_;
  bool deterministic_;
  AlgorithmCache cache_;
  Products products_;
  std::shared_ptr<Device> device_;
  std::vector<std::unique_ptr<CudaStream>> streams_;  // those of run_beside, made when first used
  std::optional<std::vector<Collected>> collected_;   // from collect_weight_gradients to run_collected
  std::map<std::tuple<EpilogueForm, bool, ProductShape>, Choice> choices_;  // by Task::repeated
  std::set<std::string> measured_;                                          // classes measured in this run
  std::int64_t products_since_new_ = 0;
  EpilogueForm form_ = EpilogueForm::chosen;
  bool repeated_ = false;
  std::set<Epilogue> separate_;                // never fused
  Epilogue latest_epilogue_ = Epilogue::none;  // that of the latest product, in either form
  bool latest_is_fused_ = false;
};

}  // namespace

std::unique_ptr<GemmKernels> make_gemm(std::shared_ptr<Device> device, std::shared_ptr<DeviceMemory> memory,
                                       std::unique_ptr<WorkTimer> timer, const GemmOptions& options) {
  return std::make_unique<CublasLtGemm>(std::move(device), std::move(memory), std::move(timer), options);
}

}  // namespace trireme::cuda
