#include "cuda/kernels/gemm.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/cublaslt/trial_operands.hpp"
#include "cuda/kernels/epilogue.hpp"
#include "cuda/kernels/fp8_operand.hpp"
#include "cuda/kernels/product_task.hpp"
#include "src/backend/kernels/shape_checks.hpp"
#include "src/base/log.hpp"

namespace trireme::cuda {
namespace {

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
    ProductTask task = forward_task(x, w, bias, activation, pre_activation, y);
    run_rounded(stream, task, x, w, fp8);
  }

  void linear_backward_input(Stream& stream, ConstTensorView dy, ConstTensorView w, Activation activation,
                             ConstTensorView pre_activation, TensorView dx,
                             const std::optional<Fp8Product>& fp8) override {
    ProductTask task = input_task(dy, w, activation, pre_activation, dx);
    run_rounded(stream, task, dy, w, fp8);
  }

  void linear_backward_weight(Stream& stream, ConstTensorView dy, ConstTensorView x, TensorView dw, TensorView dbias,
                              ProductSum sum, const std::optional<Fp8Product>& fp8) override {
    ProductTask task = weight_task(dy, x, dw, dbias, sum);
    if (!collected_) return run_rounded(stream, task, dy, x, fp8);
    RoundedOperands operands = round(cuda_stream(stream), task, dy, x, fp8);
    collected_->push_back({task, std::move(operands)});
  }

  void collect_weight_gradients() override { collected_.emplace(); }
  void run_collected(Stream& stream) override {
    const std::vector<Collected> all = std::exchange(collected_, std::nullopt).value();
    std::vector<ProductTask> tasks;
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
    ProductTask task = batched_task(product, a, b, c, d);
    if (d.numel() == 0) return;
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
  /// Operands in FP8 of a task, if any.
  struct RoundedOperands {
    std::optional<OperandInFp8> first, second;
  };
  /// A task of linear_backward_weight that waits for run_collected.
  struct Collected {
    ProductTask task;
    RoundedOperands operands;
  };

  void run_rounded(Stream& caller, ProductTask& task, ConstTensorView first, ConstTensorView second,
                   const std::optional<Fp8Product>& fp8) {
    const RoundedOperands operands = round(cuda_stream(caller), task, first, second, fp8);
    run(cuda_stream(caller), task);
  }

  /// Rounds the kernel's operands `first` and `second` to FP8, if there is a rounding, and gives them to the task.
  RoundedOperands round(CudaStream& stream, ProductTask& task, ConstTensorView first, ConstTensorView second,
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
    std::vector<ProductTask> tasks;
    for_each_group(rows, [&](std::size_t i, std::int64_t first, std::int64_t count) {
      tasks.push_back(make_task(i, first, count));
      tasks.back().repeated = repeated_;
    });
    run_beside(cuda_stream(stream), tasks);
  }

  /// Runs the tasks on several streams between two points of `caller`. Products that must be measured run before, on
  /// `caller`, with no other beside them.
  void run_beside(CudaStream& caller, std::vector<ProductTask>& all) {
    // As many as all may need: where none is measured, this may be recorded, and a graph allocates no memory.
    const std::size_t streams = std::min(all.size(), group_streams);
    while (streams > 1 && streams_.size() < streams) {
      streams_.push_back(std::make_unique<CudaStream>(device_));
      products_.workspace(*streams_.back());
    }
    std::vector<ProductTask> tasks;
    for (ProductTask& task : all) {
      if (is_measured_first(caller, task))
        run(caller, task);
      else
        tasks.push_back(task);
    }
    const std::size_t used = std::min(tasks.size(), group_streams);
    if (used <= 1) {
      for (ProductTask& task : tasks) run(caller, task);
      return;
    }
    const std::unique_ptr<Event> ready = caller.record();
    for (std::size_t i = 0; i < used; ++i) streams_[i]->wait(*ready);
    for (std::size_t i = 0; i < tasks.size(); ++i) run(*streams_[i % used], tasks[i]);
    for (std::size_t i = 0; i < used; ++i) caller.wait(*streams_[i]->record());
  }

  /// Completes the shape by what the addresses and the GPU's other work determine.
  static void place(const CudaStream& stream, ProductTask& task) {
    task.shape.alignment = alignment_of(task);
    task.shape.multiprocessors = stream.device().multiprocessors().for_product();
  }

  /// Returns whether run would measure algorithms.
  bool is_measured_first(const CudaStream& stream, ProductTask& task) {
    place(stream, task);
    if (!takes_fastest(task) || choices_.contains({form_, task.repeated, task.shape})) return false;
    const std::string key = to_string(class_of(task.shape));
    return !cache_.find(key) && can_measure(stream, key);
  }

  void run(CudaStream& stream, ProductTask& task) {
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
      run_epilogue(stream, *memory_, task);
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

  bool takes_fastest(const ProductTask& task) const {
    return !deterministic_ && !task.repeated && form_ == EpilogueForm::chosen;
  }

  Choice run_first(CudaStream& stream, const ProductTask& task) {
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
  bool try_to_run(CudaStream& stream, const ProductTask& task, const Choice& choice) {
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
  void run_with(CudaStream& stream, const ProductTask& task, const Choice& choice) {
    ProductOperands operands = task.operands;
    latest_is_fused_ = choice.fused;
    if (!choice.fused) {
      operands.d = plain_result(task);
      products_.run(stream, plain(task.shape), choice, operands);
      run_epilogue(stream, *memory_, task);
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

  /// Returns whether cuBLASLt can fuse the epilogue. It does not check all of its documented rules for kept values.
  bool can_fuse(const ProductTask& task) const {
    if (form_ == EpilogueForm::separate || separate_.contains(task.shape.epilogue)) return false;
    const bool supports_kept_values =
        task.pre_activation == nullptr || (task.shape.m % 8 == 0 && task.shape.alignment >= 16);
    return task.shape.epilogue != Epilogue::none && supports_kept_values;
  }

  /// Fused ones first.
  std::vector<Choice> candidates(CudaStream& stream, const ProductTask& task) {
    std::vector<Choice> list;
    if (can_fuse(task)) list = products_.candidates(task.shape);
    std::ranges::copy(products_.candidates(plain(task.shape)), std::back_inserter(list));
    TRIREME_CHECK(!list.empty(), CublasError, "cuBLASLt has no algorithm for the product {}; {}", to_string(task.shape),
                  to_string(stream.device().location()));
    return list;
  }

  bool is_usable(const ProductTask& task, const Choice& choice) {
    return choice.fused ? can_fuse(task) && products_.usable(task.shape, choice)
                        : products_.usable(plain(task.shape), choice);
  }

  /// Chooses the algorithm of the product's class by time; none if memory is insufficient for the trial runs.
  std::optional<Choice> fastest(CudaStream& stream, const ProductTask& task) {
    ProductTask trial = task;
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
  std::map<std::tuple<EpilogueForm, bool, ProductShape>, Choice> choices_;  // by ProductTask::repeated
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
