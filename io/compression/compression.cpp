#include "io/compression/compression.hpp"

#include <bzlib.h>
#include <fcntl.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "io/posix/file.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"

namespace trireme::io {

namespace {

constexpr std::size_t packed_bytes = std::size_t{1} << 18;  // read at a time

class PlainFile final : public ByteSource {
 public:
  PlainFile(const std::string& path, std::int64_t begin, std::int64_t end)
      : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)), position_(begin), begin_(begin), end_(end) {
    TRIREME_CHECK(file_, IoError, "cannot open {}: {}", path_, std::strerror(errno));
  }

  std::size_t read(char* data, std::size_t size_bytes) override {
    size_bytes = static_cast<std::size_t>(std::min(static_cast<std::int64_t>(size_bytes), end_ - position_));
    std::size_t got = 0;
    while (got < size_bytes) {
      const ssize_t result = uninterrupted([&] { return pread(file_.get(), data + got, size_bytes - got, position_); });
      TRIREME_CHECK(result >= 0, IoError, "cannot read {}: {}", path_, std::strerror(errno));
      TRIREME_CHECK(result > 0 || end_ == INT64_MAX, IoError, "cannot read {}: it was truncated meanwhile", path_);
      if (result == 0) break;
      got += static_cast<std::size_t>(result);
      position_ += result;
    }
    return got;
  }
  std::int64_t file_bytes_read() const override { return position_ - begin_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor file_;
  std::int64_t position_;
  std::int64_t begin_;
  std::int64_t end_;
};

/// Base of compressed files: reads packed bytes in blocks, and unpacks until there are enough.
class PackedFile : public ByteSource {
 public:
  explicit PackedFile(const std::string& path) : file_(path, 0, INT64_MAX), packed_(packed_bytes) {}

  std::size_t read(char* data, std::size_t size_bytes) final {
    std::size_t got = 0;
    while (got < size_bytes) {
      if (used_ == filled_) {
        used_ = 0;
        filled_ = file_.read(packed_.data(), packed_.size());
      }
      const bool at_end = filled_ == 0;
      if (at_end && !inside_) break;
      const std::size_t made = unpack(data + got, size_bytes - got);
      got += made;
      TRIREME_CHECK(!at_end || made > 0 || !inside_, DataError,
                    "{}, byte {}: the {} data end here, though they are not complete: the file was cut off; get it "
                    "again",
                    file_.path(), position(), name());
    }
    return got;
  }
  std::int64_t file_bytes_read() const final { return position(); }

 protected:
  virtual const char* name() const = 0;
  /// Unpacks bytes of `packed` into `data` and returns how many it made. Advances `used_`; sets `inside_` while a
  /// member is incomplete.
  virtual std::size_t unpack(char* data, std::size_t size_bytes) = 0;

  [[noreturn]] void damaged(const char* why) const {
    throw DataError("{}, byte {}: the {} data are damaged ({}); get the file again", file_.path(), position(), name(),
                    why == nullptr ? "no reason given" : why);
  }
  /// Skips zero bytes behind a member, with which tapes and some programs pad. Returns whether packed bytes are left.
  bool skip_padding() {
    while (!inside_ && packed().starts_with('\0')) ++used_;
    return inside_ || !packed().empty();
  }
  std::string_view packed() const { return std::string_view(packed_.data(), filled_).substr(used_); }
  std::int64_t position() const { return file_.file_bytes_read() - static_cast<std::int64_t>(filled_ - used_); }

  std::size_t used_ = 0;  // used part of the packed bytes in memory
  bool inside_ = false;

 private:
  PlainFile file_;
  std::vector<char> packed_;
  std::size_t filled_ = 0;
};

class GzipFile final : public PackedFile {
 public:
  explicit GzipFile(const std::string& path) : PackedFile(path) {
    constexpr int gzip_only = 16;
    TRIREME_CHECK(inflateInit2(&stream_, MAX_WBITS + gzip_only) == Z_OK, EnvironmentError, "zlib cannot start: {}",
                  stream_.msg == nullptr ? "no reason given" : stream_.msg);
  }
  ~GzipFile() override { inflateEnd(&stream_); }
  GzipFile& operator=(GzipFile&&) = delete;

 private:
  const char* name() const override { return "gzip"; }
  std::size_t unpack(char* data, std::size_t size_bytes) override {
    if (!skip_padding()) return 0;
    const std::string_view in = packed();
    // zlib uses 32-bit sizes, and only reads its input.
    const auto room = static_cast<uInt>(std::min<std::size_t>(size_bytes, 1u << 30));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(data);
    stream_.avail_out = room;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    used_ += in.size() - stream_.avail_in;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) damaged(stream_.msg);
    inside_ = result != Z_STREAM_END;
    if (!inside_) inflateReset(&stream_);
    return room - stream_.avail_out;
  }

  z_stream stream_{};
};

class ZstdFile final : public PackedFile {
 public:
  explicit ZstdFile(const std::string& path) : PackedFile(path), stream_(ZSTD_createDStream()) {
    TRIREME_CHECK(stream_, EnvironmentError, "libzstd cannot start: no memory");
    // The greatest window, of zstd --long=31, is 2 GiB, allocated for files that have it.
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }

 private:
  const char* name() const override { return "Zstandard"; }
  std::size_t unpack(char* data, std::size_t size_bytes) override {
    ZSTD_inBuffer in{packed().data(), packed().size(), 0};
    ZSTD_outBuffer out{data, size_bytes, 0};
    const std::size_t result = ZSTD_decompressStream(stream_.get(), &out, &in);
    used_ += in.pos;
    if (ZSTD_isError(result) != 0) damaged(ZSTD_getErrorName(result));
    inside_ = result != 0;
    return out.pos;
  }

  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream_;
};

class Bzip2File final : public PackedFile {
 public:
  explicit Bzip2File(const std::string& path) : PackedFile(path) { start(); }
  ~Bzip2File() override { BZ2_bzDecompressEnd(&stream_); }
  Bzip2File& operator=(Bzip2File&&) = delete;

 private:
  const char* name() const override { return "bzip2"; }
  void start() {
    const int result = BZ2_bzDecompressInit(&stream_, 0, 0);
    TRIREME_CHECK(result == BZ_OK, EnvironmentError, "bzip2 cannot start: error {}", result);
  }
  std::size_t unpack(char* data, std::size_t size_bytes) override {
    const std::string_view in = packed();
    const auto room = static_cast<unsigned>(std::min<std::size_t>(size_bytes, 1u << 30));
    stream_.next_in = const_cast<char*>(in.data());  // only read
    stream_.avail_in = static_cast<unsigned>(in.size());
    stream_.next_out = data;
    stream_.avail_out = room;
    const int result = BZ2_bzDecompress(&stream_);
    used_ += in.size() - stream_.avail_in;
    const std::size_t made = room - stream_.avail_out;
    if (result != BZ_OK && result != BZ_STREAM_END) damaged(result == BZ_DATA_ERROR ? "wrong checksum" : nullptr);
    inside_ = result != BZ_STREAM_END;
    if (!inside_) {  // another stream may follow
      BZ2_bzDecompressEnd(&stream_);
      stream_ = {};
      start();
    }
    return made;
  }

  bz_stream stream_{};
};

class XzFile final : public PackedFile {
 public:
  explicit XzFile(const std::string& path) : PackedFile(path) { start(); }
  ~XzFile() override { lzma_end(&stream_); }
  XzFile& operator=(XzFile&&) = delete;

 private:
  const char* name() const override { return "xz"; }
  void start() {
    const lzma_ret result = lzma_stream_decoder(&stream_, UINT64_MAX, 0);
    TRIREME_CHECK(result == LZMA_OK, EnvironmentError, "liblzma cannot start: error {}", static_cast<int>(result));
  }
  std::size_t unpack(char* data, std::size_t size_bytes) override {
    if (!skip_padding()) return 0;
    const std::string_view in = packed();
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(data);
    stream_.avail_out = size_bytes;
    const lzma_ret result = lzma_code(&stream_, LZMA_RUN);
    used_ += in.size() - stream_.avail_in;
    if (result == LZMA_DATA_ERROR) damaged("wrong checksum or code");
    if (result != LZMA_OK && result != LZMA_STREAM_END && result != LZMA_BUF_ERROR) damaged(nullptr);
    inside_ = result != LZMA_STREAM_END;
    if (!inside_) start();
    return size_bytes - stream_.avail_out;
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
};

std::string bzip2_stream(std::string_view bytes) {
  constexpr int block_size = 9;  // times 100 kB
  auto size = static_cast<unsigned>(bytes.size() + bytes.size() / 100 + 600);
  std::string result(size, '\0');
  const int code = BZ2_bzBuffToBuffCompress(result.data(), &size, const_cast<char*>(bytes.data()),  // only read
                                            static_cast<unsigned>(bytes.size()), block_size, 0, 0);
  TRIREME_CHECK(code == BZ_OK, EnvironmentError, "bzip2 cannot compress {} bytes: error {}", bytes.size(), code);
  result.resize(size);
  return result;
}

std::string xz_stream(std::string_view bytes) {
  std::string result(lzma_stream_buffer_bound(bytes.size()), '\0');
  std::size_t size = 0;
  const lzma_ret code = lzma_easy_buffer_encode(LZMA_PRESET_DEFAULT, LZMA_CHECK_CRC64, nullptr,
                                                reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(),
                                                reinterpret_cast<std::uint8_t*>(result.data()), &size, result.size());
  TRIREME_CHECK(code == LZMA_OK, EnvironmentError, "liblzma cannot compress {} bytes: error {}", bytes.size(),
                static_cast<int>(code));
  result.resize(size);
  return result;
}

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

Compression compression_of(const std::string& path) {
  using namespace std::string_view_literals;
  std::array<char, 10> head{};
  const std::string_view start(head.data(), PlainFile(path, 0, INT64_MAX).read(head.data(), head.size()));
  if (start.starts_with("\x1F\x8B")) return Compression::gzip;
  const bool is_skippable_frame = start.substr(0, 4).ends_with("\x2A\x4D\x18") && (start[0] & 0xF0) == 0x50;
  if (start.starts_with("\x28\xB5\x2F\xFD") || is_skippable_frame) return Compression::zstd;
  if (start.starts_with("\xFD"
                        "7zXZ")) {
    return Compression::xz;
  }
  // Behind the size of blocks is the first block, or the end.
  if (start.starts_with("BZh") && start.size() > 3 && start[3] >= '1' && start[3] <= '9') {
    const std::string_view next = start.substr(4);
    if ("1AY&SY"sv.starts_with(next) || "\x17rE8P\x90"sv.starts_with(next)) return Compression::bzip2;
  }
  TRIREME_CHECK(prepare::compression_by_name(path) == Compression::none, DataError,
                "{} does not hold compressed data, as its name says: get it again, or rename it if it is text", path);
  return Compression::none;
}

std::unique_ptr<ByteSource> open_input(const std::string& path, std::int64_t begin, std::int64_t end) {
  switch (compression_of(path)) {
    case Compression::gzip:
      return std::make_unique<GzipFile>(path);
    case Compression::zstd:
      return std::make_unique<ZstdFile>(path);
    case Compression::bzip2:
      return std::make_unique<Bzip2File>(path);
    case Compression::xz:
      return std::make_unique<XzFile>(path);
    case Compression::none:
      break;
  }
  return std::make_unique<PlainFile>(path, begin, end);
}

std::string packed(std::string_view bytes, Compression compression) {
  return compression == Compression::gzip    ? gzip_member(bytes)
         : compression == Compression::bzip2 ? bzip2_stream(bytes)
         : compression == Compression::xz    ? xz_stream(bytes)
                                             : zstd_frame(bytes);
}

}  // namespace trireme::io
