#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::io {

/// Returns the names in a folder, sorted, without "." and ".."; none where there is no such folder. Throws IoError
/// where it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

/// Returns whether the path is a folder; a symbolic link to one is not. Throws IoError where that cannot be determined.
bool is_folder(const std::string& path);

/// Returns whether anything exists at the path. Throws IoError where that cannot be determined.
bool is_there(const std::string& path);

/// Returns a digest of the names, sizes and times of modification of a file, or of all files in a folder and those
/// below it, to eight levels. Symbolic links are followed. Throws IoError where something cannot be looked at.
std::string files_digest(const std::string& path);

/// Creates the folder and those above it that are missing, and brings their names to the disk.
void make_folders(const std::string& path);

/// Deletes a folder that holds only files; those called `first` before the others. Throws IoError where that
/// fails.
void remove_folder(const std::string& folder, std::string_view first);

/// Returns the bytes that this user can still write on the file system of `path`.
std::int64_t free_bytes(const std::string& path);

/// Replaces the content of a file such that it has the old or the new one after a crash at any time. A crash may leave
/// PATH.new. One process at a time.
void write_durably(const std::string& path, std::string_view bytes);

/// Creates a file beside `path` and removes it. Throws IoError where that fails, ConfigError where a folder, device or
/// pipe stands at `path`.
void check_writable(const std::string& path);

/// Returns eight hexadecimal digits that no other process uses.
std::string unique_suffix();

}  // namespace trireme::io
