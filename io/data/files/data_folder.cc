// Lists folders, follows links and compares names.
#include "io/data/files/data_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <unordered_map>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"

namespace io {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const std::string& name) { return name.starts_with('.') || name == "__MACOSX"; }

// Describes an entry, following links.
FolderEntry described(const fs::directory_entry& entry) {
  using Kind = FolderEntry::Kind;
  FolderEntry result{.path = entry.path().string(), .name = entry.path().filename().string()};
  std::error_code failure;
  if (entry.is_directory(failure)) {
    result.kind = Kind::kFolder;
  } else if (!entry.is_regular_file(failure)) {
    const fs::file_status status = fs::status(entry.path(), failure);
    const bool unknown = status.type() == fs::file_type::none;
    result.kind =
        unknown || status.type() == fs::file_type::not_found ? Kind::kMissing : Kind::kOther;
    if (result.kind == Kind::kOther) return result;
    std::error_code ignored;
    const std::string target = fs::read_symlink(entry.path(), ignored).string();
    const bool circle = failure == std::errc::too_many_symbolic_link_levels;
    result.fault = "a link to " + target +
                   (circle    ? ", which leads back to itself"
                    : unknown ? ", which cannot be read: " + failure.message()
                              : ", which is not there");
  }
  return result;
}

// Returns the names beside a missing folder, for a hint.
std::vector<std::string> names_beside(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  const fs::path parent = folder.parent_path();
  for (fs::directory_iterator it(parent.empty() ? "." : parent, failure), end;
       !failure && it != end && names.size() < 1000; it.increment(failure)) {
    std::error_code unknown;
    if (it->is_directory(unknown)) names.push_back(it->path().filename().string());
  }
  return names;
}

[[noreturn]] void throw_no_folder(const std::string& folder) {
  fs::path path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "dir/"
  throw MissingFileError("no folder " + folder +
                         base::did_you_mean(path.filename().string(), names_beside(path)));
}

// Returns "a (1)", "a(1)", "a - Copy", "a - Copy (2)", "a copy" and "a copy 2" without the suffix.
std::string_view without_copy_mark(std::string_view stem) {
  const auto digits_before = [&](std::size_t end) {  // the start of the digits that end there
    std::size_t at = end;
    while (at > 0 && stem[at - 1] >= '0' && stem[at - 1] <= '9') --at;
    return at;
  };
  if (stem.ends_with(')')) {
    const std::size_t first = digits_before(stem.size() - 1);
    if (first < stem.size() - 1 && first > 0 && stem[first - 1] == '(') {
      stem = stem.substr(0, first - 1);
      while (stem.ends_with(' ')) stem.remove_suffix(1);
    }
  } else if (const std::size_t first = digits_before(stem.size());
             first < stem.size() && stem.substr(0, first).ends_with(" copy ")) {
    stem = stem.substr(0, first - 1);
  }
  for (const std::string_view mark : {" - Copy", " copy"})
    if (stem.ends_with(mark)) stem.remove_suffix(mark.size());
  return stem;
}

bool equal_content(const std::string& a, const std::string& b) {
  std::error_code failure;
  if (fs::file_size(a, failure) != fs::file_size(b, failure) || failure) return false;
  std::ifstream first(a, std::ios::binary), second(b, std::ios::binary);
  std::vector<char> x(1 << 16), y(1 << 16);
  while (first && second) {
    first.read(x.data(), static_cast<std::streamsize>(x.size()));
    second.read(y.data(), static_cast<std::streamsize>(y.size()));
    if (first.gcount() != second.gcount() ||
        !std::equal(x.begin(), x.begin() + first.gcount(), y.begin()))
      return false;
  }
  return first.eof() && second.eof();
}

// Checks the files of one folder. `by_content`: only copies with equal bytes are rejected.
void check_copies(const std::vector<FolderEntry>& files, bool by_content) {
  // The copies, with the names of their originals.
  std::vector<std::pair<const FolderEntry*, std::string>> copies;
  for (const FolderEntry& file : files)
    if (std::string original = original_name(file.name); original != file.name)
      copies.emplace_back(&file, std::move(original));
  if (copies.empty()) return;
  std::unordered_map<std::string_view, const FolderEntry*> by_name;
  for (const FolderEntry& file : files) by_name[file.name] = &file;
  for (const auto& [copy, original] : copies) {
    // "a (1).txt.gz" may be a copy of "a.txt" or of "a.txt.gz".
    for (const std::string& name : {original, original + ".gz"}) {
      const auto found = by_name.find(name);
      if (found == by_name.end() || found->second == copy) continue;
      if (by_content && !equal_content(found->second->path, copy->path)) continue;
      throw DataError(copy->path + " is a copy of " + found->second->path +
                      (by_content ? ", byte for byte" : ", by its name") +
                      ": expected one of them; remove or rename the other");
    }
  }
}

using Identity = std::pair<dev_t, ino_t>;

class Walk {
 public:
  Walk(const IsWanted& wanted, LeftOut& left_out, bool refuse_copies)
      : wanted_(wanted), left_out_(left_out), refuse_copies_(refuse_copies) {}

  void enter(const std::string& folder) {
    struct stat status {};
    const bool known = stat(folder.c_str(), &status) == 0;
    const Identity identity(status.st_dev, status.st_ino);
    if (known && !open_.insert(identity).second)
      throw DataError(folder + ": a link back to a folder that it lies in, which has no end");
    std::vector<FolderEntry> files;
    for (FolderEntry& entry : list_folder(folder)) {
      if (entry.kind == FolderEntry::Kind::kFolder) {
        enter(entry.path);
      } else if (entry.kind == FolderEntry::Kind::kMissing || wanted_(entry.name)) {
        check_usable(entry, "a file");  // a broken link may have been a folder
        files.push_back(std::move(entry));
      } else {
        left_out_.add(entry);
      }
    }
    if (refuse_copies_) check_copies(files, /*by_content=*/true);
    for (FolderEntry& file : files) paths.push_back(std::move(file.path));
    if (known) open_.erase(identity);
  }

  std::vector<std::string> paths;

 private:
  const IsWanted& wanted_;
  LeftOut& left_out_;
  const bool refuse_copies_;
  std::set<Identity> open_;  // the folders on the path from the first one to this one
};

}  // namespace

std::vector<FolderEntry> list_folder(const std::string& folder) {
  std::error_code failure;
  std::vector<FolderEntry> entries;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure))
    if (!is_hidden(it->path().filename().string())) entries.push_back(described(*it));
  if (failure == std::errc::no_such_file_or_directory) throw_no_folder(folder);
  if (failure == std::errc::not_a_directory)
    throw MissingFileError(folder + ": is a file; expected a folder");
  if (failure == std::errc::permission_denied)
    throw MissingFileError(folder + ": cannot be read: " + failure.message());
  const std::string text =
      "cannot list folder " + folder + ": " + base::system_error_text(failure.value());
  if (base::is_lack_of_resources(failure.value())) throw LimitError(text);
  if (failure) throw Error(text);
  std::ranges::sort(entries, {}, &FolderEntry::name);
  return entries;
}

void check_usable(const FolderEntry& entry, const std::string& expected) {
  if (entry.kind == FolderEntry::Kind::kMissing) throw DataError(entry.path + ": " + entry.fault);
  if (entry.kind == FolderEntry::Kind::kOther)
    throw DataError(entry.path + ": a device or a pipe, expected " + expected);
}

void LeftOut::add(const FolderEntry& entry) {
  if (entry.kind == FolderEntry::Kind::kFolder) {
    ++counts_["folder"];
    return;
  }
  std::string ending = fs::path(entry.name).extension().string();
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  ++counts_[ending.empty() ? "file without an ending" : "*" + ending];
}

namespace {

std::string plural(const std::string& what) {  // "folders", "files without an ending", "*.txt"
  const std::size_t noun = std::min(what.find(' '), what.size());
  return what.starts_with('*') ? what : what.substr(0, noun) + "s" + what.substr(noun);
}

}  // namespace

std::string LeftOut::line(const std::string& folder, const std::string& taken) const {
  if (counts_.empty()) return "";
  constexpr std::size_t kMaxKinds = 8;
  std::vector<std::string> parts;
  std::int64_t others = 0;
  for (const auto& [what, count] : counts_) {
    if (parts.size() == kMaxKinds)
      others += count;
    else
      parts.push_back(std::to_string(count) + " " + (count == 1 ? what : plural(what)));
  }
  if (others > 0) parts.push_back(std::to_string(others) + " others");
  return folder + ": left out " + base::join_text(parts) + "; " + taken;
}

std::vector<std::string> pick_files(const std::string& folder, const IsWanted& wanted,
                                    LeftOut& left_out) {
  std::vector<FolderEntry> files;
  for (FolderEntry& entry : list_folder(folder)) {
    if (entry.kind == FolderEntry::Kind::kFolder || !wanted(entry.name)) {
      left_out.add(entry);
      continue;
    }
    check_usable(entry, "a file");
    files.push_back(std::move(entry));
  }
  check_copies(files, /*by_content=*/false);
  std::vector<std::string> paths;
  for (FolderEntry& file : files) paths.push_back(std::move(file.path));
  return paths;
}

std::vector<std::string> pick_files_below(const std::string& folder, const IsWanted& wanted,
                                          LeftOut& left_out) {
  Walk walk(wanted, left_out, /*refuse_copies=*/true);
  walk.enter(folder);
  std::ranges::sort(walk.paths);
  return std::move(walk.paths);
}

std::vector<std::string> all_files_below(const std::string& folder) {
  LeftOut none;
  const IsWanted all = [](const std::string&) { return true; };
  Walk walk(all, none, /*refuse_copies=*/false);
  walk.enter(folder);
  std::ranges::sort(walk.paths);
  return std::move(walk.paths);
}

std::string original_name(std::string_view name) {
  std::string_view plain = name;
  if (plain.ends_with(".gz") && plain.size() > 3) plain.remove_suffix(3);
  const std::size_t dot = plain.rfind('.');
  std::string_view stem = plain.substr(0, dot);
  const std::string_view ending = dot == std::string_view::npos ? "" : plain.substr(dot);
  const std::string_view bare = without_copy_mark(stem);
  if (!bare.empty()) stem = bare;
  if (constexpr std::string_view kFront = "Copy of ";
      stem.starts_with(kFront) && stem.size() > kFront.size())
    stem.remove_prefix(kFront.size());
  return std::string(stem) + std::string(ending);
}

std::string two_parts_line(const std::string& folder) {
  return folder +
         ": found val and test; the test samples are those of val, and `engine eval --split test` "
         "evaluates those of test";
}

}  // namespace io
