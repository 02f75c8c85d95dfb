#pragma once

#include <memory>
#include <utility>

#include "src/base/hash.hpp"
#include "src/comm/forwarding_communicator.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::test {

/// Communicator whose sums have another rounding at each call, as those of NVLink switches may: each element of a sum
/// changes by up to two roundings of its type, by the same amount on every rank. Blocks.
class VaryingCommunicator final : public ForwardingCommunicator {
 public:
  explicit VaryingCommunicator(std::unique_ptr<Communicator> inner)
      : ForwardingCommunicator(*inner), inner_(std::move(inner)) {}

  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override {
    inner_->all_reduce(stream, data, op).wait(stream);
    vary(stream, data, op);
    return {};
  }
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    inner_->reduce_scatter(stream, in, out, op).wait(stream);
    vary(stream, out, op);
    return {};
  }

 private:
  void vary(Stream& stream, TensorView sum, ReduceOp op) {
    if (op != ReduceOp::sum || size() == 1 || sum.dtype() > DType::fp16) return;
    stream.synchronize();
    ++calls_;
    dispatch_float(sum.dtype(), [&]<class T>() {
      using A = Accumulation<T>;
      for (std::int64_t i = 0; i < sum.numel(); ++i) {
        const std::uint64_t bits = splitmix64(calls_, static_cast<std::uint64_t>(i));
        const double roundings = static_cast<double>(bits % 1001) / 250 - 2;
        T& element = sum.as<T>()[i];
        element =
            T(static_cast<A>(static_cast<A>(element) * static_cast<A>(1 + roundings * unit_roundoff(sum.dtype()))));
      }
    });
  }

  std::unique_ptr<Communicator> inner_;
  std::uint64_t calls_ = 0;
};

}  // namespace trireme::test
