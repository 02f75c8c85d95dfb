#include "src/backend/host_numbers.hpp"

#include "src/base/check.hpp"
#include "src/base/error.hpp"

namespace trireme {
namespace {

/// Calls function.operator()<T>() for T float or double.
template <class Function>
void dispatch_accumulation(DType dtype, const Function& function) {
  TRIREME_CHECK(dtype == accumulation_type(dtype), ShapeError, "numbers of a {} tensor: fp32 and fp64 are supported",
                name_of(dtype));
  dtype == DType::fp64 ? function.template operator()<double>() : function.template operator()<float>();
}

}  // namespace

std::vector<double> read_numbers(Backend& backend, Stream& stream, ConstTensorView data) {
  std::vector<double> numbers;
  dispatch_accumulation(data.dtype(), [&]<class T>() {
    std::vector<T> host(static_cast<std::size_t>(data.numel()));
    backend.copy_to_host(stream, data, TensorView(host.data(), data.shape()));
    stream.synchronize();
    numbers.assign(host.begin(), host.end());
  });
  return numbers;
}

void write_numbers(Backend& backend, Stream& stream, std::span<const double> numbers, TensorView data) {
  TRIREME_CHECK(std::ssize(numbers) == data.numel(), ShapeError, "{} numbers for a tensor of {}", numbers.size(),
                data.numel());
  dispatch_accumulation(data.dtype(), [&]<class T>() {
    std::vector<T> host;
    for (const double number : numbers) host.push_back(static_cast<T>(number));
    backend.copy_from_host(stream, ConstTensorView(host.data(), data.shape()), data);
    stream.synchronize();
  });
}

}  // namespace trireme
