#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/base/hash.hpp"

namespace trireme::test {

/// Uploads numbers to a new tensor on `backend`.
template <class T>
Tensor upload(Backend& backend, const Shape& shape, const std::vector<T>& values) {
  const ConstTensorView host(values.data(), shape);
  Tensor tensor(backend, host.dtype(), shape);
  backend.copy_from_host(backend.compute_stream(), host, tensor);
  backend.compute_stream().synchronize();
  return tensor;
}

/// A tensor on `backend` that holds `values`, rounded to `dtype`, a floating-point type; to 16-bit ones via fp32.
inline Tensor make_tensor(Backend& backend, DType dtype, const Shape& shape, const std::vector<double>& values) {
  return dispatch_float(dtype, [&]<class T>() {
    std::vector<T> host(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<T, double>)
        host[i] = values[i];
      else
        host[i] = T(static_cast<float>(values[i]));
    }
    return upload(backend, shape, host);
  });
}
/// make_tensor of integers (token numbers, targets).
inline Tensor make_tensor(Backend& backend, const Shape& shape, const std::vector<std::int32_t>& values) {
  return upload(backend, shape, values);
}

/// Numbers of samples on `backend`, as dropout takes them.
inline Tensor samples_tensor(Backend& backend, const std::vector<std::int64_t>& numbers) {
  return upload(backend, {static_cast<std::int64_t>(numbers.size())}, numbers);
}

/// The elements of a floating-point tensor; all of these types fit into a double exactly.
inline std::vector<double> values_of(Backend& backend, ConstTensorView tensor) {
  return dispatch_float(tensor.dtype(), [&]<class T>() {
    std::vector<T> host(static_cast<std::size_t>(tensor.numel()));
    backend.copy_to_host(backend.compute_stream(), tensor, TensorView(host.data(), tensor.shape()));
    backend.compute_stream().synchronize();
    std::vector<double> values(host.size());
    for (std::size_t i = 0; i < host.size(); ++i) {
      if constexpr (std::is_same_v<T, double>)
        values[i] = host[i];
      else
        values[i] = static_cast<float>(host[i]);
    }
    return values;
  });
}

/// The elements of an int32 tensor.
inline std::vector<std::int32_t> integers_of(Backend& backend, ConstTensorView tensor) {
  std::vector<std::int32_t> host(static_cast<std::size_t>(tensor.numel()));
  backend.copy_to_host(backend.compute_stream(), tensor, TensorView(host.data(), tensor.shape()));
  backend.compute_stream().synchronize();
  return host;
}

/// The bytes of a tensor, to compare bits.
inline std::vector<std::byte> bytes_of(Backend& backend, ConstTensorView tensor) {
  std::vector<std::byte> host(tensor.size_bytes());
  backend.copy_to_host(backend.compute_stream(), tensor, TensorView(host.data(), tensor.dtype(), tensor.shape()));
  backend.compute_stream().synchronize();
  return host;
}

/// Value of TRIREME_TEST_SEED, by default 0. All random values depend on it (random_tensor.hpp). It is the same in
/// every run of ctest; a run on a GPU chooses and prints a new one.
inline std::uint64_t run_seed() {
  const char* given = std::getenv("TRIREME_TEST_SEED");
  return given != nullptr ? std::stoull(given) : 0;
}

/// n numbers, uniform in [low, high), the same for the same seed in the same run (run_seed).
inline std::vector<double> random_values(std::int64_t n, std::uint64_t seed, double low = -1, double high = 1) {
  seed += run_seed();
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    values[i] = low + (high - low) * (static_cast<double>(splitmix64(seed, i) >> 11) * 0x1p-53);
  }
  return values;
}

/// A tensor of random numbers, uniform in [low, high), then rounded to `dtype`.
inline Tensor random_tensor(Backend& backend, DType dtype, const Shape& shape, std::uint64_t seed, double low = -1,
                            double high = 1) {
  return make_tensor(backend, dtype, shape, random_values(shape.numel(), seed, low, high));
}

/// Returns the numbers in another type. References are computed from fp64 copies of the inputs.
inline Tensor converted(Backend& backend, ConstTensorView tensor, DType dtype) {
  return make_tensor(backend, dtype, tensor.shape(), values_of(backend, tensor));
}

/// An output for a kernel that overwrites. NaN everywhere shows elements that the kernel reads or does not write.
inline Tensor poisoned_tensor(Backend& backend, DType dtype, const Shape& shape) {
  return make_tensor(backend, dtype, shape, std::vector<double>(static_cast<std::size_t>(shape.numel()), std::nan("")));
}

/// The same for int32: a large number everywhere.
inline Tensor poisoned_integers(Backend& backend, const Shape& shape) {
  return make_tensor(backend, shape, std::vector<std::int32_t>(static_cast<std::size_t>(shape.numel()), 1 << 30));
}

}  // namespace trireme::test
