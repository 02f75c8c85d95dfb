#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "tests/ptx/operations/operations.hpp"

namespace trireme::ptx {
namespace {

template <class T, int count>
void load(Warp& warp, const Instruction& instruction, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    T values[count];
    std::memcpy(values, warp.memory(instruction, instruction.space, 0, lane, sizeof(values), Access::read),
                sizeof(values));
    for (std::size_t i = 0; i < count; ++i) warp.row(instruction.rows[i])[lane] = slot_of(values[i]);
  });
}
template <class T, int count>
void store(Warp& warp, const Instruction& instruction, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    T values[count];
    for (std::size_t i = 0; i < count; ++i) values[i] = value_of<T>(warp.row(instruction.rows[i])[lane]);
    std::memcpy(warp.memory(instruction, instruction.space, 0, lane, sizeof(values), Access::write), values,
                sizeof(values));
  });
}

void reduce_max(Warp& warp, const Instruction& instruction, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    std::uint64_t value = 0;
    std::byte* const at = warp.memory(instruction, Space::global, 0, lane, sizeof value, Access::write);
    std::memcpy(&value, at, sizeof value);
    value = std::max(value, warp.row(instruction.rows[0])[lane]);
    std::memcpy(at, &value, sizeof value);
  });
}

template <class T>
void add_types(OperationTable& table, std::initializer_list<std::string> types) {
  for (const std::string& type : types) {
    table["ld." + type] = {&load<T, 1>, 1, 1};
    table["st." + type] = {&store<T, 1>, 1, 1};
    table["ld.v2." + type] = {&load<T, 2>, 2, 1};
    table["st.v2." + type] = {&store<T, 2>, 2, 1};
    if constexpr (sizeof(T) <= 4) {
      table["ld.v4." + type] = {&load<T, 4>, 4, 1};
      table["st.v4." + type] = {&store<T, 4>, 4, 1};
    }
  }
}

/// Begins a copy of 16 bytes to shared memory; bytes from operand 1 on are zeros.
void copy_async(Warp& warp, const Instruction& instruction, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    const auto size = static_cast<std::size_t>(value_of<std::uint32_t>(warp.row(instruction.rows[0])[lane]));
    const auto valid = static_cast<std::size_t>(value_of<std::uint32_t>(warp.row(instruction.rows[1])[lane]));
    if (size != 16 || valid > size) warp.fail(instruction, lane, "copies have 16 bytes");
    const std::byte* to = warp.memory(instruction, Space::shared, 0, lane, size, Access::copy);
    const std::byte* from = nullptr;
    if (valid > 0) from = warp.memory(instruction, Space::global, 1, lane, size, Access::read);
    warp.begin_copy(lane, {from, static_cast<std::size_t>(to - warp.shared().at(0)), size, valid});
  });
}

template <std::uint64_t window>
void add_windows(OperationTable& table, const std::string& space) {
  table["cvta." + space + ".u64"] = mapped([](std::uint64_t a) { return a | window; });
  table["cvta.to." + space + ".u64"] = mapped([](std::uint64_t a) { return a & ~window; });
}

}  // namespace

void add_memory_operations(OperationTable& table) {
  add_types<std::int8_t>(table, {"s8"});
  add_types<std::uint8_t>(table, {"u8", "b8"});
  add_types<std::int16_t>(table, {"s16"});
  add_types<std::uint16_t>(table, {"u16", "b16"});
  add_types<std::int32_t>(table, {"s32"});
  add_types<std::uint32_t>(table, {"u32", "b32", "f32"});
  add_types<std::int64_t>(table, {"s64"});
  add_types<std::uint64_t>(table, {"u64", "b64", "f64"});
  table["red.global.max.u64"] = {&reduce_max, 1, 1};
  add_windows<0>(table, "global");
  add_windows<shared_window>(table, "shared");
  add_windows<local_window>(table, "local");

  table["cp.async.cg.shared.global"] = {&copy_async, 2, 2};
  table["cp.async.commit_group"] = {[](Warp& warp, const Instruction&, Lanes lanes) {
    for_lanes(lanes, [&](int lane) { warp.commit_copies(lane); });
  }};
  table["cp.async.wait_group"] = {
      [](Warp& warp, const Instruction& instruction, Lanes lanes) {
        for_lanes(lanes, [&](int lane) { warp.wait_for_copies(lane, warp.row(instruction.rows[0])[lane]); });
      },
      1};
}

}  // namespace trireme::ptx
