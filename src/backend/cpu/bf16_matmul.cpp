#include "src/backend/cpu/bf16_matmul.hpp"

#include <omp.h>

#include <array>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>

namespace trireme::cpu {
namespace {

/// Extents, strides, transpositions and the update: what a primitive is generated for.
using Key = std::array<std::int64_t, 9>;

struct Primitive {
  dnnl::memory::desc a, b, c;
  dnnl::matmul matmul;
  std::size_t scratch_bytes = 0;
};

/// Primitives kept at most; generating text makes products of ever new lengths.
constexpr std::size_t cache_size = 512;

}  // namespace

struct Bf16Matmul::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::mutex mutex;
  std::map<Key, std::shared_ptr<const Primitive>> primitives;  // guarded by mutex
  ScratchPool scratch;

  std::shared_ptr<const Primitive> primitive(const Key& key) {
    const std::lock_guard lock(mutex);
    if (const auto found = primitives.find(key); found != primitives.end()) return found->second;
    if (primitives.size() == cache_size) primitives.clear();
    return primitives[key] = make(key);
  }

  std::shared_ptr<const Primitive> make(const Key& key) const {
    const auto [m, n, k, a_stride, a_transposed, b_stride, b_transposed, c_stride, accumulate] = key;
    const auto description = [](std::int64_t rows, std::int64_t columns, dnnl::memory::data_type type,
                                std::int64_t stride, std::int64_t transposed) {
      return dnnl::memory::desc({rows, columns}, type,
                                transposed != 0 ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1});
    };
    auto result = std::make_shared<Primitive>();
    result->a = description(m, k, dnnl::memory::data_type::bf16, a_stride, a_transposed);
    result->b = description(k, n, dnnl::memory::data_type::bf16, b_stride, b_transposed);
    result->c = description(m, n, dnnl::memory::data_type::f32, c_stride, 0);
    dnnl::primitive_attr attributes;
    // oneDNN's own scratch memory belongs to the thread that made the primitive.
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (accumulate != 0) {
      dnnl::post_ops operations;
      operations.append_sum(1);
      attributes.set_post_ops(operations);
    }
    const dnnl::matmul::primitive_desc primitive({result->a, result->b, result->c}, attributes, engine);
    result->scratch_bytes = primitive.scratchpad_desc().get_size();
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
      return true;
    default:
      return false;
  }
}

void Bf16Matmul::multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<bf16>& a, const Matrix<bf16>& b,
                          bool accumulate, float* c, std::int64_t c_stride) {
  omp_set_num_threads(1);  // of the calling thread: both making and running a primitive would start more
  const std::shared_ptr<const Primitive> primitive =
      state_->primitive({m, n, k, a.stride, a.transposed, b.stride, b.transposed, c_stride, accumulate});
  const dnnl::engine& engine = state_->engine;
  ScratchPool::Lease lease(state_->scratch, primitive->scratch_bytes);
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, dnnl::memory(primitive->a, engine, const_cast<bf16*>(a.data))},
      {DNNL_ARG_WEIGHTS, dnnl::memory(primitive->b, engine, const_cast<bf16*>(b.data))},
      {DNNL_ARG_DST, dnnl::memory(primitive->c, engine, c)}};
  if (primitive->scratch_bytes > 0) {
    const auto size = static_cast<std::int64_t>(primitive->scratch_bytes);
    const dnnl::memory::desc scratch({size}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a);
    arguments.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(scratch, engine, lease.take<std::byte>(size)));
  }
  dnnl::stream stream(engine);
  primitive->matmul.execute(stream, arguments);
}

}  // namespace trireme::cpu
