#include "src/selftest/kernels/trial.hpp"

#include <algorithm>

#include "src/base/hash.hpp"

namespace trireme::selftest {
namespace {

/// Returns a number as a T, via fp32 for 16-bit types.
template <class T>
T number_as(double value) {
  return T(static_cast<Accumulation<T>>(value));
}

template <class T>
double double_of(T number) {
  return static_cast<Accumulation<T>>(number);
}

double rounded_to(DType dtype, double value) {
  return dispatch_float(dtype, [&]<class T>() { return double_of(number_as<T>(value)); });
}

}  // namespace

TensorView Trial::uniform(const Shape& shape, double low, double high, DType rounded, DType stored) {
  const std::uint64_t seed = ++inputs_;
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = low + (high - low) * (static_cast<double>(splitmix64(seed, i) >> 11) * 0x1p-53);
  }
  if (rounded != stored) {
    for (double& value : values) value = rounded_to(rounded, value);
  }
  return upload(stored, shape, values);
}

TensorView Trial::filled(DType dtype, const Shape& shape, double value) {
  return upload(dtype, shape, std::vector<double>(static_cast<std::size_t>(shape.numel()), value));
}

TensorView Trial::upload(DType dtype, const Shape& shape, const std::vector<double>& values) {
  Tensor& tensor = tensors_.emplace_back(b, dtype, shape);
  dispatch_float(dtype, [&]<class T>() {
    std::vector<T> host(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) host[i] = number_as<T>(values[i]);
    b.copy_from_host(stream(), ConstTensorView(host.data(), shape), tensor);
    stream().synchronize();
  });
  return tensor;
}

template <class T>
const T* Trial::upload_integers(const std::vector<T>& values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  Tensor& tensor = tensors_.emplace_back(b, dtype_of<T>(), shape);
  b.copy_from_host(stream(), ConstTensorView(values.data(), shape), tensor);
  stream().synchronize();
  return tensor.view().template as<T>();
}

TensorView Trial::integers(const Shape& shape, std::int64_t limit) {
  const std::uint64_t seed = ++inputs_;
  std::vector<std::int32_t> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(splitmix64(seed, i) % static_cast<std::uint64_t>(limit));
  }
  upload_integers(values);
  return tensors_.back().view().reshape(shape);
}

const std::int64_t* Trial::samples(std::int64_t batch) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(batch));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 1000 + static_cast<std::int64_t>(i);
  return upload_integers(numbers);
}

const std::int32_t* Trial::lengths(std::int64_t batch, std::int64_t max_length) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(batch));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int32_t>(max_length * static_cast<std::int64_t>(i + 1) / batch);
  }
  return upload_integers(numbers);
}

const std::int32_t* Trial::document_starts(std::int64_t positions, std::int64_t batch) {
  std::vector<std::int32_t> numbers;
  for (std::int64_t i = 0; i < positions * batch; ++i) {
    const std::int64_t position = i / batch, length = positions / 3 + 1 - i % batch % 2;
    numbers.push_back(static_cast<std::int32_t>(position - position % std::max<std::int64_t>(length, 1)));
  }
  return upload_integers(numbers);
}

void Trial::round(TensorView tensor) {
  if (type == tested_) return;
  const Tensor narrow(b, tested_, tensor.shape());
  b.elementwise().convert(stream(), tensor, narrow);
  b.elementwise().convert(stream(), narrow, tensor);
  stream().synchronize();
}

void Trial::take(ConstTensorView tensor, Precision precision) {
  Outcome& outcome = outcomes_.emplace_back();
  outcome.precision = precision;
  outcome.stored = tensor.dtype();
  outcome.values.resize(static_cast<std::size_t>(tensor.numel()));
  dispatch_float(tensor.dtype(), [&]<class T>() {
    std::vector<T> host(outcome.values.size());
    b.copy_to_host(stream(), tensor, TensorView(host.data(), tensor.shape()));
    stream().synchronize();
    outcome.digest = digest(host.data(), host.size() * sizeof(T));
    std::ranges::transform(host, outcome.values.begin(), double_of<T>);
  });
}

}  // namespace trireme::selftest
