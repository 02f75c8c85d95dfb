#include "src/train/guards/not_finite.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/base/hash.hpp"

namespace trireme::train {
namespace {

/// Calls function(host) with the elements of `x`, part by part.
template <class Function>
void for_parts_on_host(Backend& backend, ConstTensorView x, const Function& function) {
  constexpr std::int64_t part = 1 << 22;
  Stream& stream = backend.compute_stream();
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(part, x.numel())) * size_of(x.dtype()));
  for (std::int64_t begin = 0; begin < x.numel(); begin += part) {
    const std::int64_t count = std::min(part, x.numel() - begin);
    const TensorView host(bytes.data(), x.dtype(), {count});
    backend.copy_to_host(stream, x.flat(begin, count), host);
    stream.synchronize();
    function(host);
  }
}

}  // namespace

std::int64_t count_not_finite(Backend& backend, ConstTensorView x, TensorView sum) {
  Stream& stream = backend.compute_stream();
  double squares = 0;
  backend.elementwise().fill(stream, 0, sum);
  backend.reduce().sum_squares(stream, x, sum);
  backend.copy_to_host(stream, sum, TensorView(&squares, {1}));
  stream.synchronize();
  std::int64_t bad = 0;
  if (std::isfinite(squares)) return bad;
  for_parts_on_host(backend, x, [&](ConstTensorView host) {
    dispatch_float(x.dtype(), [&]<class T>() {
      const T* elements = host.as<T>();
      bad += std::count_if(elements, elements + host.numel(),
                           [](T element) { return !std::isfinite(static_cast<Accumulation<T>>(element)); });
    });
  });
  return bad;
}

std::uint64_t hash_of_elements(Backend& backend, ConstTensorView x, std::uint64_t seed) {
  for_parts_on_host(backend, x, [&](TensorView host) {
    dispatch_float(x.dtype(), [&]<class T>() {
      T* elements = host.as<T>();
      for (std::int64_t i = 0; i < host.numel(); ++i) {
        if (std::isnan(static_cast<Accumulation<T>>(elements[i])))
          elements[i] = T(std::numeric_limits<float>::quiet_NaN());
      }
    });
    seed = hash64(host.data(), host.size_bytes(), seed);
  });
  return seed;
}

}  // namespace trireme::train
