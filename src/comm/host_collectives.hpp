#pragma once

#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include "src/comm/communicator.hpp"

namespace trireme {

/// Sends `outgoing[r]` to each rank r, and returns the data received from every rank, in rank order. Blocking, on host
/// memory.
std::vector<std::vector<std::uint8_t>> all_to_all_bytes(Communicator& comm,
                                                        std::span<const std::span<const std::uint8_t>> outgoing,
                                                        const Caller& caller = Caller::current());

/// Sends records to each rank, and returns the received ones concatenated in rank order.
template <class T>
std::vector<T> all_to_all(Communicator& comm, const std::vector<std::vector<T>>& outgoing,
                          const Caller& caller = Caller::current()) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::span<const std::uint8_t>> bytes;
  for (const std::vector<T>& records : outgoing) {
    bytes.emplace_back(reinterpret_cast<const std::uint8_t*>(records.data()), records.size() * sizeof(T));
  }
  std::vector<T> result;
  for (const std::vector<std::uint8_t>& message : all_to_all_bytes(comm, bytes, caller)) {
    const T* const first = reinterpret_cast<const T*>(message.data());
    result.insert(result.end(), first, first + message.size() / sizeof(T));
  }
  return result;
}

/// Gathers equally many numbers from every rank, in rank order. Blocking, on host memory.
template <class T>
std::vector<T> all_gather_numbers(Communicator& comm, std::span<const T> numbers,
                                  const Caller& caller = Caller::current()) {
  ImmediateStream host;
  std::vector<T> all(numbers.size() * static_cast<std::size_t>(comm.size()));
  comm.all_gather({host, caller}, ConstTensorView(numbers.data(), {std::ssize(numbers)}),
                  TensorView(all.data(), {std::ssize(all)}))
      .wait(host);
  return all;
}

/// Likewise of one number.
template <class T>
std::vector<T> all_gather_number(Communicator& comm, T number, const Caller& caller = Caller::current()) {
  return all_gather_numbers<T>(comm, {&number, 1}, caller);
}

/// Reduces an array of numbers in host memory over all ranks, in place. Blocking.
template <std::ranges::contiguous_range Numbers>
void all_reduce_numbers(Communicator& comm, Numbers& numbers, ReduceOp op, const Caller& caller = Caller::current()) {
  ImmediateStream host;
  comm.all_reduce({host, caller}, TensorView(std::ranges::data(numbers), {std::ranges::ssize(numbers)}), op).wait(host);
}

/// Returns a number reduced over all ranks. Blocking, on host memory.
template <class T>
T all_reduce_number(Communicator& comm, T number, ReduceOp op, const Caller& caller = Caller::current()) {
  std::span<T, 1> numbers(&number, 1);
  all_reduce_numbers(comm, numbers, op, caller);
  return number;
}

}  // namespace trireme
