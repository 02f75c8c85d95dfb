#include "src/backend/cpu/bf16_matmul.hpp"

#include <omp.h>

#include <array>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>

namespace trireme::cpu {
namespace {

enum Output : std::int64_t { fp32_overwritten, fp32_accumulated, bf16_plain, bf16_with_bias };

/// Key of a primitive: extents, strides, transpositions and the output.
using Key = std::array<std::int64_t, 9>;

struct Primitive {
  dnnl::memory::desc a, b, bias, c, scratch;
  dnnl::matmul matmul;
};

/// Maximum number of cached primitives; text generation has products of many lengths.
constexpr std::size_t cache_size = 512;

}  // namespace

struct Bf16Matmul::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  const bool has_tiles = dnnl::get_effective_cpu_isa() != dnnl::cpu_isa::avx512_core_bf16;
  std::mutex mutex;
  std::map<Key, std::shared_ptr<const Primitive>> primitives;  // guarded by mutex
  ScratchPool scratch;

  std::shared_ptr<const Primitive> primitive(const Key& key) {
    const std::lock_guard lock(mutex);
    if (const auto found = primitives.find(key); found != primitives.end()) return found->second;
    if (primitives.size() == cache_size) primitives.clear();
    return primitives[key] = make(key);
  }

  void run(const Key& key, const bf16* a, const bf16* b, const bf16* bias, void* c) {
    omp_set_num_threads(1);  // creating and running a primitive would start threads
    const std::shared_ptr<const Primitive> used = primitive(key);
    std::unordered_map<int, dnnl::memory> arguments;
    const auto add = [&](int argument, const dnnl::memory::desc& description, const void* data) {
      arguments.emplace(argument, dnnl::memory(description, engine, const_cast<void*>(data)));
    };
    add(DNNL_ARG_SRC, used->a, a);
    add(DNNL_ARG_WEIGHTS, used->b, b);
    add(DNNL_ARG_DST, used->c, c);
    if (bias != nullptr) add(DNNL_ARG_BIAS, used->bias, bias);
    const auto scratch_bytes = static_cast<std::int64_t>(used->scratch.get_size());
    ScratchPool::Lease lease(scratch, static_cast<std::size_t>(scratch_bytes));
    if (scratch_bytes > 0) add(DNNL_ARG_SCRATCHPAD, used->scratch, lease.take<std::byte>(scratch_bytes));
    dnnl::stream stream(engine);
    used->matmul.execute(stream, arguments);
  }

  std::shared_ptr<const Primitive> make(const Key& key) const {
    const auto [m, n, k, a_stride, a_transposed, b_stride, b_transposed, c_stride, output] = key;
    using Type = dnnl::memory::data_type;
    const auto description = [](std::int64_t rows, std::int64_t columns, Type type, std::int64_t stride,
                                std::int64_t transposed) {
      return dnnl::memory::desc({rows, columns}, type,
                                transposed != 0 ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1});
    };
    const bool rounded = output == bf16_plain || output == bf16_with_bias;
    auto result = std::make_shared<Primitive>();
    result->a = description(m, k, Type::bf16, a_stride, a_transposed);
    result->b = description(k, n, Type::bf16, b_stride, b_transposed);
    result->c = description(m, n, rounded ? Type::bf16 : Type::f32, c_stride, 0);
    if (output == bf16_with_bias) result->bias = description(1, n, Type::bf16, n, 0);
    dnnl::primitive_attr attributes;
    // oneDNN's own scratch memory belongs to the creating thread.
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (output == fp32_accumulated) {
      dnnl::post_ops operations;
      operations.append_sum(1);
      attributes.set_post_ops(operations);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc primitive(engine, result->a, result->b, result->bias, result->c, attributes);
#else
    const dnnl::matmul::primitive_desc primitive({result->a, result->b, result->bias, result->c}, attributes, engine);
#endif
    result->scratch = primitive.scratchpad_desc();
    result->matmul = dnnl::matmul(primitive);
    return result;
  }
};

Bf16Matmul::Bf16Matmul() : state_(std::make_unique<State>()) {}
Bf16Matmul::~Bf16Matmul() = default;

bool Bf16Matmul::available() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_bf16:
    case dnnl::cpu_isa::avx512_core_amx:
#if DNNL_VERSION_MAJOR >= 3
    case dnnl::cpu_isa::avx512_core_fp16:
    case dnnl::cpu_isa::avx512_core_amx_fp16:
#endif
      return true;
    default:
      return false;
  }
}

std::int64_t Bf16Matmul::min_exchanged_rows() const {
  // Vectors of sums hold 16 columns of the transpose; tiles of AMX of any number take as long as the memory.
  return state_->has_tiles ? 2 : 6;
}

void Bf16Matmul::multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<bf16>& a, const Matrix<bf16>& b,
                          bool accumulate, float* c, std::int64_t c_stride) {
  state_->run({m, n, k, a.stride, a.transposed, b.stride, b.transposed, c_stride,
               accumulate ? fp32_accumulated : fp32_overwritten},
              a.data, b.data, nullptr, c);
}

void Bf16Matmul::multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<bf16>& a, const Matrix<bf16>& b,
                          const bf16* bias, bf16* c, std::int64_t c_stride) {
  state_->run({m, n, k, a.stride, a.transposed, b.stride, b.transposed, c_stride,
               bias == nullptr ? bf16_plain : bf16_with_bias},
              a.data, b.data, bias, c);
}

}  // namespace trireme::cpu
