#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::app::megatron {

/// Returns the value of a sum in whole numbers with + - * / % and brackets, as bash computes it. `value_of` gives the
/// variables. Nothing where the text is another, a variable has no value, or the result does not fit into 64 bits.
std::optional<std::int64_t> shell_sum(std::string_view text,
                                      const std::function<std::optional<std::string>(const std::string&)>& value_of);

}  // namespace trireme::app::megatron
