#include "tests/ptx/warp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace trireme::ptx {

Warp::Warp(const BlockState& block, int number)
    : block_(block),
      number_(number),
      registers_(static_cast<std::size_t>(block.kernel->rows * warp_size), 0xfff7fff7fff7fff7),
      local_(block.kernel->local_bytes * warp_size) {
  const auto fill = [&](int to, std::uint64_t value) { std::fill_n(row(to), warp_size, value); };
  for (const Kernel::Constant& constant : block.kernel->constants) fill(constant.row, constant.value);
  fill(ntid_row, static_cast<std::uint64_t>(block.threads));
  fill(nctaid_row, block.count);
  for (int lane = 0; lane < warp_size; ++lane) {
    row(tid_row)[lane] = static_cast<std::uint64_t>(thread_of(lane));
    row(lane_row)[lane] = static_cast<std::uint64_t>(lane);
  }
}

void Warp::reset() {
  std::fill_n(row(ctaid_row), warp_size, block_.number);
  std::fill(local_.begin(), local_.end(), std::byte{0xff});
  at_.fill(0);
  ended_ = at_barrier_ = waiting_ = attempting_ = 0;
  products_.reset(block_.kernel->rows);
  products_begun_ = 0;
  for (auto& groups : groups_) groups.assign(1, {});
}

bool Warp::run() {
  attempting_ = 0;
  advanced_ = false;
  while (const Lanes lanes = first_lanes()) run_together(lanes);
  if (waiting_ == 0 || attempting_ != 0) return advanced_;
  const int lane = std::countr_zero(waiting_);
  const Instruction& instruction = block_.kernel->code[static_cast<std::size_t>(at_[lane_index(lane)])];
  fail(instruction, lane,
       fmt::format("the lanes {:#010x} wait here for others of the warp, which do not come", waiting_));
}

void Warp::pass_barrier() {
  for (int& at : at_) ++at;
  at_barrier_ = 0;
}

void Warp::fail_at_barrier() const {
  const int lane = std::countr_zero(at_barrier_);
  fail(block_.kernel->code[static_cast<std::size_t>(at_[lane_index(lane)])], lane,
       "not all threads of the block reach this barrier");
}

void Warp::fail_attempt() const {
  const int lane = std::countr_zero(attempting_);
  fail(block_.kernel->code[static_cast<std::size_t>(at_[lane_index(lane)])], lane,
       "waits for a phase that does not end");
}

void Warp::begin_product(const Instruction& instruction, const GroupProduct& product) {
  if ((number_ / 4 + 1) * 4 * warp_size > block_.threads) fail(instruction, 0, "the warp group is not complete");
  GroupProducts& of_group = products_of_group();
  if (products_begun_ == of_group.size()) of_group.push_back(product);
  if (of_group[products_begun_++] != product) fail(instruction, 0, "other warps of the group begin another product");
}

void Warp::check_products() const {
  const Instruction& end = block_.kernel->code.back();
  if (!products_.empty()) fail(end, 0, "a product was not waited for");
  if (products_begun_ != products_of_group().size()) fail(end, 0, "other warps of the group have begun more products");
}

void Warp::check_registers(const Instruction& instruction, Lanes lanes) {
  const auto is_used = [&](int row) { return products_.uses(row); };
  if (std::any_of(instruction.rows.begin(), instruction.rows.end(), is_used)) {
    fail(instruction, std::countr_zero(lanes), "accesses a register of a product that was not waited for");
  }
  products_.modify(instruction.rows[0]);
}

Lanes Warp::first_lanes() {
  int first = std::numeric_limits<int>::max();
  first_other_ = first;
  Lanes lanes = 0;
  for_lanes(~(ended_ | at_barrier_ | waiting_ | attempting_), [&](int lane) {
    const int at = at_[lane_index(lane)];
    if (at < first) {
      first_other_ = first;
      first = at;
      lanes = 0;
    }
    if (at == first) lanes |= Lanes{1} << lane;
    if (at > first) first_other_ = std::min(first_other_, at);
  });
  return lanes;
}

Lanes Warp::lanes_at(int instruction) const {
  Lanes lanes = 0;
  for (int lane = 0; lane < warp_size; ++lane) {
    if (at_[lane_index(lane)] == instruction) lanes |= Lanes{1} << lane;
  }
  return lanes;
}

void Warp::go_to(Lanes lanes, int instruction) {
  for_lanes(lanes, [&](int lane) { at_[lane_index(lane)] = instruction; });
}

Lanes Warp::guarded(const Instruction& instruction, Lanes lanes) {
  if (instruction.guard < 0) return lanes;
  const std::uint64_t* guard = row(instruction.guard);
  Lanes active = 0;
  for (int lane = 0; lane < warp_size; ++lane) active |= static_cast<Lanes>(guard[lane] & 1) << lane;
  return lanes & (instruction.negated ? ~active : active);
}

void Warp::run_together(Lanes lanes) {
  int at = at_[lane_index(std::countr_zero(lanes))];
  do {
    const Instruction& instruction = block_.kernel->code[static_cast<std::size_t>(at)];
    const Lanes active = guarded(instruction, lanes);
    if (instruction.kind == Kind::plain) {
      if (active != 0) {
        if (products_.has_begun()) check_registers(instruction, active);
        instruction.run(*this, instruction, active);
      }
      advanced_ = true;
      ++at;
    } else if (instruction.kind == Kind::branch && active == lanes) {
      at = instruction.target;
    } else if (instruction.kind == Kind::attempt) {
      go_to(lanes, at);
      attempt(instruction, lanes, active);
      return;
    } else {
      advanced_ = true;
      go_to(lanes, at + 1);
      if (active == 0) {
        ++at;
        continue;
      }
      switch (instruction.kind) {
        case Kind::branch:
          go_to(active, instruction.target);
          break;
        case Kind::exit:
          ended_ |= active;
          break;
        case Kind::barrier:
          go_to(active, at);
          at_barrier_ |= active;
          break;
        default:
          go_to(active, at);
          meet(instruction, active);
      }
      return;
    }
  } while (at < first_other_);
  go_to(lanes, at);
}

void Warp::attempt(const Instruction& instruction, Lanes lanes, Lanes active) {
  const int at = at_[lane_index(std::countr_zero(lanes))];
  if (active != 0) instruction.run(*this, instruction, active);
  Lanes failed = 0;
  for_lanes(active, [&](int lane) {
    if ((row(instruction.rows[0])[lane] & 1) == 0) failed |= Lanes{1} << lane;
  });
  attempting_ |= failed;
  if (failed != lanes) advanced_ = true;
  go_to(lanes & ~failed, at + 1);
}

void Warp::meet(const Instruction& instruction, Lanes lanes) {
  const int at = at_[lane_index(std::countr_zero(lanes))];
  const Lanes here = lanes | (waiting_ & lanes_at(at));
  Lanes mask = all_lanes;
  if (instruction.mask >= 0) {
    mask = static_cast<Lanes>(row(instruction.mask)[std::countr_zero(here)]);
    for_lanes(here, [&](int lane) {
      if (static_cast<Lanes>(row(instruction.mask)[lane]) != mask) fail(instruction, lane, "the lanes' masks differ");
    });
    if ((here & ~mask) != 0) fail(instruction, std::countr_zero(here & ~mask), "the lane is not in its own mask");
  }
  if (here != mask) {
    waiting_ |= lanes;
    return;
  }
  waiting_ &= ~here;
  instruction.run(*this, instruction, here);
  go_to(here, at + 1);
}

void Warp::fail(const Instruction& instruction, int lane, const std::string& reason) const {
  throw PtxError(fmt::format("kernel {}, block {}, thread {}, line {}: {} {}", block_.kernel->name, block_.number,
                             thread_of(lane), instruction.line, instruction.text, reason));
}

void Warp::wait_for_copies(int lane, std::size_t latest) {
  auto& groups = groups_[lane_index(lane)];
  while (groups.size() > latest + 1) {
    for (const Copy& copy : groups.front()) {
      if (copy.valid_bytes > 0) std::memcpy(shared().at(copy.to), copy.from, copy.valid_bytes);
      std::memset(shared().at(copy.to) + copy.valid_bytes, 0, copy.size_bytes - copy.valid_bytes);
      shared().end_copy(thread_of(lane), copy.to, copy.size_bytes);
    }
    groups.pop_front();
  }
}

std::uint64_t Warp::check_global(const Instruction& instruction, int lane, std::uint64_t address,
                                 std::size_t size_bytes) {
  if (!region_.contains(address, size_bytes)) region_ = (*block_.regions)(address);
  if (!region_.contains(address, size_bytes)) {
    fail(instruction, lane, fmt::format("the address {:#x} is outside of what was allocated", address));
  }
  return address;
}

void Warp::check_race(const Instruction& instruction, int lane, std::size_t offset, std::size_t size_bytes,
                      Access access) {
  const int thread = thread_of(lane);
  const bool is_free = access == Access::read    ? shared().read(thread, offset, size_bytes)
                       : access == Access::write ? shared().write(thread, offset, size_bytes)
                                                 : shared().begin_copy(thread, offset, size_bytes);
  if (!is_free) fail(instruction, lane, shared().race());
}

std::byte* Warp::memory(const Instruction& instruction, Space space, int address, int lane, std::size_t size_bytes,
                        Access access) {
  const Instruction::Address& operand = instruction.addresses[static_cast<std::size_t>(address)];
  std::uint64_t at = row(operand.row)[lane] + static_cast<std::uint64_t>(operand.offset);
  if (at % size_bytes != 0) fail(instruction, lane, fmt::format("the address {:#x} is not aligned", at));
  if (space == Space::generic) {
    space = (at & shared_window) != 0 ? Space::shared : (at & local_window) != 0 ? Space::local : Space::global;
    at &= ~(shared_window | local_window);
  }
  const auto within = [&](std::size_t size, const char* what) {
    if (at >= size || size_bytes > size - at) {
      fail(instruction, lane, fmt::format("the address {:#x} is outside of the {} bytes of {}", at, size, what));
    }
  };
  switch (space) {
    case Space::shared:
      at = static_cast<std::uint32_t>(at);
      within(shared().size(), "shared memory");
      check_race(instruction, lane, at, size_bytes, access);
      return shared().at(at);
    case Space::local:
      within(block_.kernel->local_bytes, "local memory");
      return &local_[lane_index(lane) * block_.kernel->local_bytes + at];
    case Space::parameter:
      within(block_.kernel->parameter_bytes, "parameters");
      if (access != Access::read) fail(instruction, lane, "parameters of a kernel are not written");
      return const_cast<std::byte*>(block_.parameters->data()) + at;
    default:
      return reinterpret_cast<std::byte*>(check_global(instruction, lane, at, size_bytes));
  }
}

namespace {

void run_block(std::deque<Warp>& warps, SharedMemory& shared) {
  shared.reset();
  for (Warp& warp : warps) warp.reset();
  while (true) {
    bool advanced = false;
    for (Warp& warp : warps) advanced |= warp.run();
    if (std::all_of(warps.begin(), warps.end(), [](const Warp& warp) { return warp.has_ended(); })) break;
    const auto attempting =
        std::find_if(warps.begin(), warps.end(), [](const Warp& warp) { return warp.is_attempting(); });
    if (attempting != warps.end()) {
      if (!advanced) attempting->fail_attempt();
      continue;
    }
    for (const Warp& warp : warps) {
      if (!warp.is_at_barrier() && !warp.has_ended()) warp.fail_at_barrier();
    }
    if (!std::all_of(warps.begin(), warps.end(), [](const Warp& warp) { return warp.is_at_barrier(); })) {
      std::find_if(warps.begin(), warps.end(), [](const Warp& warp) {
        return warp.is_at_barrier();
      })->fail_at_barrier();
    }
    for (Warp& warp : warps) warp.pass_barrier();
    shared.pass_block_barrier();
  }
  for (const Warp& warp : warps) warp.check_products();
}

}  // namespace

void run(const Kernel& kernel, const Launch& launch, const Regions& regions) {
  if (launch.threads <= 0 || launch.threads % warp_size != 0 || launch.threads > kernel.max_threads) {
    throw PtxError(fmt::format("kernel {}: blocks of {} threads, and it was compiled for at most {}", kernel.name,
                               launch.threads, kernel.max_threads));
  }
  SharedMemory shared(kernel.shared_bytes + launch.shared_bytes, launch.threads);
  std::vector<GroupProducts> products(static_cast<std::size_t>(launch.threads / warp_size / 4 + 1));
  BlockState block{&kernel, &launch.parameters, &regions, &shared, &products, 0, launch.blocks, launch.threads};
  std::deque<Warp> warps;
  for (int warp = 0; warp < launch.threads / warp_size; ++warp) warps.emplace_back(block, warp);
  for (; block.number < launch.blocks; ++block.number) {
    for (GroupProducts& of_group : products) of_group.clear();
    run_block(warps, shared);
  }
}

std::vector<std::byte> pack_parameters(const Kernel& kernel, std::span<const void* const> arguments) {
  std::vector<std::byte> packed(kernel.parameter_bytes);
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    std::memcpy(packed.data() + kernel.parameters[i].offset, arguments[i], kernel.parameters[i].size);
  }
  return packed;
}

}  // namespace trireme::ptx
