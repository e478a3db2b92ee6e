// Names of functions by their addresses, from the symbol tables of the loaded files: dladdr() knows
// exported functions only, and kernels are local to their files.
#include <elf.h>
#include <link.h>

#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "tests/emulator/ptx/interpreter.h"

namespace ptx {
namespace {

using Table = std::map<std::uintptr_t, Symbol>;

void read_symbols(const char* path, std::uintptr_t base, Table& table) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto at = [&]<class T>(std::size_t offset, T& to) {
    if (offset + sizeof to > bytes.size()) return false;
    std::memcpy(&to, bytes.data() + offset, sizeof to);
    return true;
  };
  ElfW(Ehdr) header;
  if (!at(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return;
  for (unsigned s = 0; s < header.e_shnum; ++s) {
    ElfW(Shdr) section, names;
    if (!at(header.e_shoff + s * sizeof section, section) || section.sh_type != SHT_SYMTAB ||
        !at(header.e_shoff + section.sh_link * sizeof names, names))
      continue;
    std::string source;
    for (std::size_t n = 0; n < section.sh_size / sizeof(ElfW(Sym)); ++n) {
      ElfW(Sym) symbol;
      if (!at(section.sh_offset + n * sizeof symbol, symbol)) break;
      const std::size_t name_at = names.sh_offset + symbol.st_name;
      if (name_at >= bytes.size()) continue;
      const char* name = bytes.c_str() + name_at;
      const auto type = symbol.st_info & 15, binding = symbol.st_info >> 4;
      if (type == STT_FILE) source = name;
      if (type != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
      // Local symbols follow the name of their file.
      table[base + symbol.st_value] = {name, binding == STB_LOCAL ? source : ""};
    }
  }
}

Table read_all() {
  Table table;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        const char* path = *info->dlpi_name == '\0' ? "/proc/self/exe" : info->dlpi_name;
        // Kernels are in the program and in libraries of this build, not in the system's.
        if (std::strncmp(path, "/lib", 4) != 0 && std::strncmp(path, "/usr/lib", 8) != 0)
          read_symbols(path, info->dlpi_addr, *static_cast<Table*>(to));
        return 0;
      },
      &table);
  return table;
}

}  // namespace

Symbol symbol_of(const void* function) {
  static std::mutex mutex;
  static Table* table = new Table(read_all());
  const std::lock_guard lock(mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(function);
  auto found = table->find(address);
  if (found == table->end()) {  // in a library that was loaded since
    *table = read_all();
    found = table->find(address);
  }
  return found == table->end() ? Symbol{} : found->second;
}

// Both compilers name it by its length and "_GLOBAL__N_", followed by "1" or by what nvcc makes of
// the file's name.
std::string comparable(const std::string& mangled) {
  static const std::string mark = "_GLOBAL__N_";
  std::string result;
  std::size_t done = 0;
  for (std::size_t at = mangled.find(mark); at != std::string::npos;
       at = mangled.find(mark, done)) {
    std::size_t digits = at;
    while (digits > done && std::isdigit(static_cast<unsigned char>(mangled[digits - 1])) != 0)
      --digits;
    const std::size_t length = digits < at ? std::stoul(mangled.substr(digits, at - digits)) : 0;
    if (length < mark.size() || at + length > mangled.size()) break;
    result += mangled.substr(done, digits - done) + "12_GLOBAL__N_1";
    done = at + length;
  }
  return result + mangled.substr(done);
}

}  // namespace ptx
