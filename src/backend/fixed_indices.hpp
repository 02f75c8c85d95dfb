#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "src/backend/backend.hpp"

namespace trireme {

/// Numbers of rows that stay on the device: recorded work reads them again without the host.
class FixedIndices {
 public:
  /// Returns the numbers of `key`, int32. At the first use of the key copies those of `make` to the device.
  TensorView at(Backend& backend, std::pair<std::int64_t, std::int64_t> key,
                const std::function<std::vector<std::int32_t>()>& make) {
    const auto [found, is_new] = tensors_.try_emplace(key);
    if (is_new) {
      const std::vector<std::int32_t> numbers = make();
      found->second = Tensor(backend, DType::int32, {std::ssize(numbers)});
      backend.copy_from_host(backend.compute_stream(), ConstTensorView(numbers.data(), found->second.view().shape()),
                             found->second);
    }
    return found->second;
  }

 private:
  std::map<std::pair<std::int64_t, std::int64_t>, Tensor> tensors_;
};

}  // namespace trireme
