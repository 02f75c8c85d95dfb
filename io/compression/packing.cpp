#include "io/compression/packing.hpp"

#include <zlib.h>
#include <zstd.h>

#include <memory>

#include "src/base/check.hpp"

namespace trireme::io {
namespace {

std::string gzip_member(std::string_view bytes) {
  constexpr int window_bits = 15 + 16;  // 15 is the largest window, 16 selects gzip's header
  constexpr int memory_level = 8;
  z_stream stream{};
  TRIREME_CHECK(
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits, memory_level, Z_DEFAULT_STRATEGY) == Z_OK,
      EnvironmentError, "compression by zlib failed: no memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, deflateEnd);
  std::string result(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  const int code = deflate(&stream, Z_FINISH);
  TRIREME_CHECK(code == Z_STREAM_END, EnvironmentError, "zlib cannot compress {} bytes: error {}", bytes.size(), code);
  result.resize(stream.total_out);
  return result;
}

std::string zstd_frame(std::string_view bytes) {
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  TRIREME_CHECK(context, EnvironmentError, "compression by Zstandard failed: no memory");
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string result(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size = ZSTD_compress2(context.get(), result.data(), result.size(), bytes.data(), bytes.size());
  TRIREME_CHECK(ZSTD_isError(size) == 0, EnvironmentError, "Zstandard cannot compress {} bytes: {}", bytes.size(),
                ZSTD_getErrorName(size));
  result.resize(size);
  return result;
}

}  // namespace

std::string packed(std::string_view bytes, Compression compression) {
  return compression == Compression::gzip ? gzip_member(bytes) : zstd_frame(bytes);
}

}  // namespace trireme::io
