#include <cstring>

#include "src/tensor/dtype.hpp"
#include "tests/ptx/operations/operations.hpp"

// Operations of compute capability 9.0: products of warp groups, and mbarriers.

namespace trireme::ptx {
namespace {

constexpr int steps = 16;  // channels of a product

/// A factor of a product in shared memory by its descriptor (PTX ISA, "Matrix Descriptor Format"): element (k, n) is
/// row n, column k or, transposed, row k, column n. Of the ways to lay it out only the 128-byte swizzle within one
/// block of 64 columns is known.
class SharedFactor {
 public:
  SharedFactor(std::uint64_t descriptor, bool transposed) : descriptor_(descriptor), transposed_(transposed) {}

  bool is_known() const { return descriptor_ >> 49 == std::uint64_t{1} << 13; }
  /// The pieces of 16 bytes of steps x count elements.
  std::vector<PendingProducts::Piece> pieces(std::size_t count) const {
    std::vector<PendingProducts::Piece> all;
    for (std::size_t row = 0; row < (transposed_ ? steps : count); ++row) {
      for (std::size_t column = 0; column < (transposed_ ? count : steps); column += 8) {
        all.push_back({offset(row, column), 16});
      }
    }
    return all;
  }
  template <class T>
  float element(SharedMemory& shared, std::size_t k, std::size_t n) const {
    std::uint16_t bits = 0;
    std::memcpy(&bits, shared.at(transposed_ ? offset(k, n) : offset(n, k)), sizeof(bits));
    return static_cast<float>(std::bit_cast<T>(bits));
  }

 private:
  std::size_t offset(std::size_t row, std::size_t column) const {
    const std::size_t between = (descriptor_ >> 32 & 0x3fff) << 4;  // between groups of eight rows
    const std::size_t linear = ((descriptor_ & 0x3fff) << 4) + row / 8 * between + row % 8 * 128 + 2 * column;
    return linear ^ (linear >> 7 & 7) << 4;
  }
  std::uint64_t descriptor_;
  bool transposed_;
};

/// d = a b, or d += a b: the warp's 16 rows of the group's 64. Operands: registers of d; a, four registers or a
/// descriptor; descriptor of b; a predicate to add; factors 1 of a and b; whether a in shared memory and b are
/// transposed. Fragments of a and d are those of mma.m16n8k16.
template <class T, int columns, bool shared_a>
void multiply(Warp& warp, const Instruction& instruction, Lanes) {
  constexpr std::size_t a_at = columns / 2, b_at = a_at + (shared_a ? 1 : 4), end = b_at + (shared_a ? 6 : 5);
  static_assert(end <= max_operands);
  const auto operand = [&](std::size_t i) { return warp.row(instruction.rows[i]); };
  const auto fail = [&](const std::string& reason) { warp.fail(instruction, 0, reason); };
  const GroupProduct product{&instruction, operand(b_at)[0], shared_a ? operand(a_at)[0] : 0, operand(b_at + 1)[0] & 1};
  for (std::size_t lane = 1; lane < warp_size; ++lane) {
    if (operand(b_at)[lane] != product.descriptor || (operand(b_at + 1)[lane] & 1) != product.adds ||
        (shared_a && operand(a_at)[lane] != product.left)) {
      fail("differs among the lanes");
    }
  }
  const SharedFactor a_factor(product.left, false), b_factor(product.descriptor, operand(end - 1)[0] != 0);
  if (!b_factor.is_known() || (shared_a && (!a_factor.is_known() || operand(end - 2)[0] != 0)) ||
      operand(b_at + 2)[0] != 1 || operand(b_at + 3)[0] != 1) {
    fail("has a descriptor or a factor that is not understood");
  }
  PendingProducts& products = warp.products();
  const std::size_t a_end = shared_a ? a_at : b_at;
  const auto registers = [&](std::size_t begin, std::size_t behind) {
    return std::vector<int>(&instruction.rows[begin], &instruction.rows[begin] + (behind - begin));
  };
  if (!products.is_fenced()) fail("without wgmma.fence before the products");
  for (std::size_t i = 0; i < a_end; ++i) {
    if (products.is_modified(instruction.rows[i])) fail("uses a register that was changed after wgmma.fence");
    if (i < a_at ? products.uses(instruction.rows[i]) && !products.sums(instruction.rows[i])
                 : products.sums(instruction.rows[i])) {
      fail("uses a register of a product that was not waited for");
    }
  }
  warp.begin_product(instruction, product);
  std::vector<PendingProducts::Piece> pieces = b_factor.pieces(columns);
  if constexpr (shared_a) {
    // All 64 rows: which warp reads which is not documented.
    const std::vector<PendingProducts::Piece> of_a = a_factor.pieces(4 * 16);
    pieces.insert(pieces.end(), of_a.begin(), of_a.end());
  }
  for (const auto& [offset, size_bytes] : pieces) {
    if (offset + size_bytes > warp.shared().size()) fail("reads outside of shared memory");
    if (!warp.shared().begin_product(warp.number(), offset, size_bytes)) fail(warp.shared().race());
  }

  float a[16][steps], b[steps][columns], sums[16][columns]{};
  if constexpr (shared_a) {
    const std::size_t first = static_cast<std::size_t>(warp.number() % 4) * 16;
    for (std::size_t row = 0; row < 16; ++row) {
      for (std::size_t k = 0; k < steps; ++k) a[row][k] = a_factor.element<T>(warp.shared(), k, first + row);
    }
  } else {
    for (std::size_t lane = 0; lane < warp_size; ++lane) {
      for (std::size_t i = 0; i < 8; ++i) {
        const std::size_t r = i / 2, half = i % 2;
        a[lane / 4 + 8 * (r % 2)][lane % 4 * 2 + half + 8 * (r / 2)] =
            static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(operand(a_at + r)[lane] >> 16 * half)));
      }
    }
  }
  for (std::size_t k = 0; k < steps; ++k) {
    for (std::size_t n = 0; n < columns; ++n) b[k][n] = b_factor.element<T>(warp.shared(), k, n);
  }
  const auto for_sums = [&](auto&& visit) {
    for (std::size_t i = 0; i < a_at; ++i) {
      for (std::size_t lane = 0; lane < warp_size; ++lane) {
        visit(operand(i)[lane], sums[lane / 4 + 8 * (i / 2 % 2)][i / 4 * 8 + lane % 4 * 2 + i % 2]);
      }
    }
  };
  if (product.adds != 0) for_sums([](std::uint64_t slot, float& sum) { sum = value_of<float>(slot); });
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t k = 0; k < steps; ++k) {
      for (std::size_t n = 0; n < columns; ++n) sums[row][n] += a[row][k] * b[k][n];
    }
  }
  for_sums([](std::uint64_t& slot, float sum) { slot = slot_of(sum); });
  products.add(registers(0, a_at), registers(a_at, a_end), std::move(pieces));
}

template <int columns, bool shared_a>
void add_products(OperationTable& table) {
  constexpr int operands = columns / 2 + (shared_a ? 7 : 9);
  const std::string name = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + "k16.f32.";
  const std::string form = "." + std::to_string(operands);
  table[name + "bf16.bf16" + form] = {&multiply<bf16, columns, shared_a>, operands, 0, Kind::collective};
  table[name + "f16.f16" + form] = {&multiply<fp16, columns, shared_a>, operands, 0, Kind::collective};
}

/// Calls function(lane, offset) with the offset of the mbarrier of each lane, which returns whether it is free of
/// faults.
template <class Function>
void for_barriers(Warp& warp, const Instruction& instruction, Lanes lanes, Function&& function) {
  for_lanes(lanes, [&](int lane) {
    const Instruction::Address& address = instruction.addresses[0];
    const std::uint64_t at = warp.row(address.row)[lane] + static_cast<std::uint64_t>(address.offset);
    if (at % 8 != 0 || at + 8 > warp.shared().size()) warp.fail(instruction, lane, "is no mbarrier in shared memory");
    if (!function(lane, static_cast<std::size_t>(at))) warp.fail(instruction, lane, warp.shared().race());
  });
}
unsigned operand_of(Warp& warp, const Instruction& instruction, std::size_t operand, int lane) {
  return value_of<std::uint32_t>(warp.row(instruction.rows[operand])[lane]);
}

}  // namespace

void add_warp_group_operations(OperationTable& table) {
  add_products<32, false>(table);
  add_products<64, false>(table);
  add_products<32, true>(table);
  add_products<64, true>(table);
  table["wgmma.fence.sync.aligned"] = {[](Warp& warp, const Instruction&, Lanes) { warp.products().fence(); }, 0, 0,
                                       Kind::collective};
  table["wgmma.commit_group.sync.aligned"] = {[](Warp& warp, const Instruction&, Lanes) { warp.products().commit(); },
                                              0, 0, Kind::collective};
  table["wgmma.wait_group.sync.aligned"] = {[](Warp& warp, const Instruction& instruction, Lanes) {
                                              warp.products().wait(operand_of(warp, instruction, 0, 0), warp.number(),
                                                                   warp.shared());
                                            },
                                            1, 0, Kind::collective};
  table["fence.proxy.async.shared::cta"] = {[](Warp& warp, const Instruction&, Lanes lanes) {
    for_lanes(lanes, [&](int lane) { warp.shared().publish_to_products(warp.number() * warp_size + lane); });
  }};
  // The number of registers has no effect here.
  for (const std::string change : {"inc", "dec"}) {
    table["setmaxnreg." + change + ".sync.aligned.u32"] = {[](Warp&, const Instruction&, Lanes) {}, 1, 0,
                                                           Kind::collective};
  }

  table["mbarrier.init.shared::cta.b64"] = {[](Warp& warp, const Instruction& instruction, Lanes lanes) {
                                              for_barriers(warp, instruction, lanes, [&](int lane, std::size_t at) {
                                                return warp.shared().initialise_barrier(
                                                    warp.number() * warp_size + lane, at,
                                                    operand_of(warp, instruction, 0, lane));
                                              });
                                            },
                                            1, 1};
  table["mbarrier.arrive.shared::cta.b64"] = {[](Warp& warp, const Instruction& instruction, Lanes lanes) {
                                                for_barriers(warp, instruction, lanes, [&](int lane, std::size_t at) {
                                                  return warp.shared().arrive(warp.number() * warp_size + lane, at);
                                                });
                                              },
                                              1, 1};
  table["mbarrier.try_wait.parity.shared::cta.b64"] = {
      [](Warp& warp, const Instruction& instruction, Lanes lanes) {
        for_barriers(warp, instruction, lanes, [&](int lane, std::size_t at) {
          bool ended = false;
          const bool is_right = warp.shared().try_wait(warp.number() * warp_size + lane, at,
                                                       operand_of(warp, instruction, 1, lane), ended);
          warp.row(instruction.rows[0])[lane] = ended ? 1 : 0;
          return is_right;
        });
      },
      2, 1, Kind::attempt};
}

}  // namespace trireme::ptx
