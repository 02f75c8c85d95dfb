#include <cstring>

#include "src/tensor/dtype.hpp"
#include "tests/ptx/operations/operations.hpp"

// Operations of the lanes of a warp together.

namespace trireme::ptx {
namespace {

/// d|p = the value of lane source(lane, b) of the same segment. The segments and their limit are in c.
template <class Source>
void shuffle(Warp& warp, const Instruction& instruction, Lanes lanes) {
  std::uint64_t values[warp_size];
  std::memcpy(values, warp.row(instruction.rows[2]), sizeof(values));
  for_lanes(lanes, [&](int lane) {
    const auto b = value_of<std::uint32_t>(warp.row(instruction.rows[3])[lane]) & 0x1f;
    const auto c = value_of<std::uint32_t>(warp.row(instruction.rows[4])[lane]);
    const std::uint32_t segment = c >> 8 & 0x1f, own = static_cast<std::uint32_t>(lane);
    const std::uint32_t limit = (own & segment) | (c & 0x1f & ~segment);
    std::uint32_t source = Source{}(own, b, segment);
    const bool valid = source <= limit;
    if (!valid) source = own;
    if ((lanes >> source & 1) == 0) warp.fail(instruction, lane, "the source lane does not take part");
    warp.row(instruction.rows[0])[lane] = static_cast<std::uint32_t>(values[source]);
    warp.row(instruction.rows[1])[lane] = valid ? 1 : 0;
  });
}
struct Butterfly {
  std::uint32_t operator()(std::uint32_t lane, std::uint32_t b, std::uint32_t) const { return lane ^ b; }
};
struct Indexed {
  std::uint32_t operator()(std::uint32_t lane, std::uint32_t b, std::uint32_t segment) const {
    return (lane & segment) | (b & ~segment);
  }
};

void ballot(Warp& warp, const Instruction& instruction, Lanes lanes) {
  Lanes votes = 0;
  for_lanes(lanes, [&](int lane) { votes |= static_cast<Lanes>(warp.row(instruction.rows[1])[lane] & 1) << lane; });
  for_lanes(lanes, [&](int lane) { warp.row(instruction.rows[0])[lane] = votes; });
}

template <class T>
float half_of(std::uint64_t pair, int half) {
  return static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(pair >> 16 * half)));
}

/// d = a b + c of 16 x 16, 16 x 8 and 16 x 8 elements. Fragments as in the PTX ISA, 9.7.14 "mma.m16n8k16": with g =
/// lane / 4 and t = lane % 4, register r of a holds row g + 8 (r % 2), columns 2t + 8 (r / 2) and the next, register r
/// of b rows 2t + 8r and the next of column g, register i of c and d row g + 8 (i / 2), column 2t + i % 2. PTX leaves
/// the order of additions open; it is that of k.
template <class T>
void multiply_matrices(Warp& warp, const Instruction& instruction, Lanes) {
  constexpr std::size_t d_at = 0, a_at = 4, b_at = 8, c_at = 10;
  float a[16][16], b[16][8], sums[16][8];
  for (int lane = 0; lane < warp_size; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 4; ++r) {
        const std::uint64_t pair = warp.row(instruction.rows[a_at + static_cast<std::size_t>(r)])[lane];
        a[g + 8 * (r % 2)][2 * t + half + 8 * (r / 2)] = half_of<T>(pair, half);
      }
      for (int r = 0; r < 2; ++r) {
        const std::uint64_t pair = warp.row(instruction.rows[b_at + static_cast<std::size_t>(r)])[lane];
        b[2 * t + half + 8 * r][g] = half_of<T>(pair, half);
      }
    }
  }
  const auto for_elements = [&](std::size_t first, auto&& visit) {
    for (int lane = 0; lane < warp_size; ++lane) {
      for (int i = 0; i < 4; ++i) {
        visit(warp.row(instruction.rows[first + static_cast<std::size_t>(i)])[lane],
              sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2]);
      }
    }
  };
  for_elements(c_at, [](std::uint64_t slot, float& sum) { sum = value_of<float>(slot); });
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) sums[row][column] += a[row][k] * b[k][column];
    }
  }
  for_elements(d_at, [](std::uint64_t& slot, float sum) { slot = slot_of(sum); });
}

/// Matrices of 8 x 8 elements with 16 bits. Lane 8m + i gives the address of row i of matrix m. Each lane gets of each
/// matrix row g, columns 2t and the next; transposed, rows 2t and the next of column g.
template <int count, bool transposed>
void load_matrices(Warp& warp, const Instruction& instruction, Lanes) {
  std::uint16_t matrix[count * 8][8];
  for (int row = 0; row < count * 8; ++row) {
    std::memcpy(matrix[row], warp.memory(instruction, Space::shared, 0, row, sizeof(matrix[row]), Access::read),
                sizeof(matrix[row]));
  }
  for (int lane = 0; lane < warp_size; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int m = 0; m < count; ++m) {
      const std::uint16_t low = transposed ? matrix[8 * m + 2 * t][g] : matrix[8 * m + g][2 * t];
      const std::uint16_t high = transposed ? matrix[8 * m + 2 * t + 1][g] : matrix[8 * m + g][2 * t + 1];
      warp.row(instruction.rows[static_cast<std::size_t>(m)])[lane] = low | std::uint32_t{high} << 16;
    }
  }
}
template <int count>
void add_load_matrices(OperationTable& table) {
  const std::string name = "ldmatrix.sync.aligned.m8n8.x" + std::to_string(count);
  table[name + ".shared.b16"] = {&load_matrices<count, false>, count, 1, Kind::collective};
  table[name + ".trans.shared.b16"] = {&load_matrices<count, true>, count, 1, Kind::collective};
}

}  // namespace

const OperationTable& operations() {
  static const OperationTable table = [] {
    OperationTable filled;
    for (const auto add : {add_integer_operations, add_bit_operations, add_float_operations, add_conversions,
                           add_memory_operations, add_warp_operations, add_warp_group_operations}) {
      add(filled);
    }
    return filled;
  }();
  return table;
}

void add_warp_operations(OperationTable& table) {
  table["shfl.sync.bfly.b32"] = {&shuffle<Butterfly>, 6, 0, Kind::collective, true};
  table["shfl.sync.idx.b32"] = {&shuffle<Indexed>, 6, 0, Kind::collective, true};
  table["vote.sync.ballot.b32"] = {&ballot, 3, 0, Kind::collective, true};
  table["bar.warp.sync"] = {
      [](Warp& warp, const Instruction&, Lanes) { warp.shared().pass_warp_barrier(warp.number()); }, 1, 0,
      Kind::collective, true};
  table["bar.sync"] = {nullptr, 1, 0, Kind::barrier};
  const std::string mma = "mma.sync.aligned.m16n8k16.row.col.f32.";
  table[mma + "f16.f16.f32"] = {&multiply_matrices<fp16>, 14, 0, Kind::collective};
  table[mma + "bf16.bf16.f32"] = {&multiply_matrices<bf16>, 14, 0, Kind::collective};
  add_load_matrices<1>(table);
  add_load_matrices<2>(table);
  add_load_matrices<4>(table);
}

}  // namespace trireme::ptx
