#pragma once

#include <cstddef>
#include <cstdint>

#include "src/tensor/dtype.hpp"

namespace trireme::io {

// Constants of the corpus format, for writer and reader; io/README.md describes it.
inline constexpr const char* corpus_format_name = "trireme-corpus";
inline constexpr const char* corpus_view_format_name = "trireme-corpus-view";
inline constexpr std::int64_t corpus_format_version = 1;
inline constexpr std::int64_t corpus_block_tokens = std::int64_t{1} << 20;
inline constexpr std::size_t digest_digits = 32;

constexpr DType token_type(std::int64_t vocabulary_size) {
  return vocabulary_size > 65536 ? DType::uint32 : DType::uint16;
}

}  // namespace trireme::io
