#pragma once

// The counterpart of cuda/gpu/warp_groups.cuh on the host. Products are complete at once: tests/ptx finds what does not
// wait for them.

#include <gpu/mma.cuh>

#include <stdexcept>

namespace trireme::gpu {

constexpr int group_threads = 128, swizzle_bytes = 1024;

using Barrier = host::PhaseBarrier;
inline void initialise(Barrier& barrier, unsigned arrivals) {
  const auto count = static_cast<std::uint16_t>(arrivals);
  barrier = {count, count, 0};
}
inline void arrive(Barrier& barrier) { host::arrive(barrier); }
inline void wait_for_phase(Barrier& barrier, unsigned phase,
                           const std::source_location& where = std::source_location::current()) {
  host::wait_for_phase(barrier, phase, where);
}

template <int registers>
void give_up_registers() {}
template <int registers>
void take_registers() {}
inline void publish_to_products() {}
inline void begin_products() {}
template <class... Sums>
void finish_products(Sums&...) {}

namespace host {

struct GroupProduct {
  const std::uint32_t* a;  // null: in shared memory
  const void *shared_a, *b;
  float* c;
  bool add;
};

/// Element (row, column) of a block from `begin` on, both before the swizzle.
template <class T>
float swizzled(const void* begin, int row, int column) {
  const auto linear = reinterpret_cast<std::uintptr_t>(begin) + static_cast<std::uintptr_t>(row * 128 + column * 2);
  std::uint16_t bits = 0;
  std::memcpy(&bits, reinterpret_cast<const void*>(linear ^ (linear >> 7 & 7) << 4), sizeof(bits));
  return static_cast<float>(std::bit_cast<T>(bits));
}

template <class T, int columns, bool transposed>
void multiply_group(Arguments threads) {
  const auto& first = *static_cast<const GroupProduct*>(threads[0]);
  const void* begin = first.b;
  for (const void* thread : threads) {
    const auto& own = *static_cast<const GroupProduct*>(thread);
    if (own.b != begin || own.shared_a != first.shared_a) throw std::logic_error("the factors of a group differ");
  }
  float b[16][columns];
  for (int k = 0; k < 16; ++k) {
    for (int n = 0; n < columns; ++n) b[k][n] = swizzled<T>(begin, transposed ? k : n, transposed ? n : k);
  }
  for (int warp = 0; warp < group_threads / warp_size; ++warp) {
    const Arguments lanes = threads.subspan(static_cast<std::size_t>(warp * warp_size), warp_size);
    float a[16][16], sums[16][columns];
    const auto for_sums = [&](auto&& visit) {
      for (int lane = 0; lane < warp_size; ++lane) {
        const auto& own = *static_cast<const GroupProduct*>(lanes[static_cast<std::size_t>(lane)]);
        for (int i = 0; i < columns / 2; ++i) {
          visit(own.c[i], own, sums[lane / 4 + 8 * (i / 2 % 2)][i / 4 * 8 + 2 * (lane % 4) + i % 2]);
        }
      }
    };
    for (int lane = 0; lane < warp_size; ++lane) {
      const auto& own = *static_cast<const GroupProduct*>(lanes[static_cast<std::size_t>(lane)]);
      for (int i = 0; i < 8; ++i) {
        const int r = i / 2, row = lane / 4 + 8 * (r % 2), k = 2 * (lane % 4) + i % 2 + 8 * (r / 2);
        a[row][k] = own.a == nullptr ? swizzled<T>(own.shared_a, 16 * warp + row, k) : half_of<T>(own.a[r], i % 2);
      }
    }
    for_sums([](float own, const GroupProduct& product, float& sum) { sum = product.add ? own : 0; });
    for (int row = 0; row < 16; ++row) {
      for (int k = 0; k < 16; ++k) {
        for (int n = 0; n < columns; ++n) sums[row][n] += a[row][k] * b[k][n];
      }
    }
    for_sums([](float& own, const GroupProduct&, float sum) { own = sum; });
  }
}

}  // namespace host

template <class T>
struct SharedFactor {
  explicit SharedFactor(const T* first) : tile(first) {}
  const T* tile;
};
template <class T, int columns, bool transposed>
void multiply_add_group(const std::uint32_t (&a)[4], const SharedFactor<T>& b, int element, float (&c)[columns / 8][4],
                        bool add = true, const std::source_location& where = std::source_location::current()) {
  host::check_alignment(b.tile + element, where);
  host::GroupProduct product{a, nullptr, b.tile + element, &c[0][0], add};
  host::collective(group_threads, &product, host::multiply_group<T, columns, transposed>, where);
}
template <class T, int columns>
void multiply_add_group(const SharedFactor<T>& a, int element_of_a, const SharedFactor<T>& b, int element,
                        float (&c)[columns / 8][4], bool add = true,
                        const std::source_location& where = std::source_location::current()) {
  host::check_alignment(a.tile + element_of_a, where);
  host::check_alignment(b.tile + element, where);
  host::GroupProduct product{nullptr, a.tile + element_of_a, b.tile + element, &c[0][0], add};
  host::collective(group_threads, &product, host::multiply_group<T, columns, false>, where);
}

}  // namespace trireme::gpu
