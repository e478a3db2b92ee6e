// The names that may stand in a pickle beside tensors.
#include "io/interchange/torch/pickle_names.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace io::pickle {
namespace {

// MODULE.NAME of values that are stored beside models and are skipped. Nothing is imported or
// called: a name that is not listed is rejected although it would be harmless here, so that a file
// that is made to execute code elsewhere is detected.
constexpr std::string_view kHarmless[] = {
    "_codecs.encode",
    "argparse.Namespace",
    "collections.Counter",
    "datetime.date",
    "datetime.datetime",
    "datetime.time",
    "datetime.timedelta",
    "datetime.timezone",
    "decimal.Decimal",
    "fractions.Fraction",
    "numpy.dtype",
    "numpy.ndarray",
    "pathlib.Path",
    "pathlib.PosixPath",
    "pathlib.PurePath",
    "pathlib.PurePosixPath",
    "pathlib.PureWindowsPath",
    "pathlib.WindowsPath",
    "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath",
    "torch.Size",
    "torch.device",
    "torch.torch_version.TorchVersion",
    "types.SimpleNamespace",
    "uuid.UUID",
};
// The module's name in Python 2 or in another version, with the same names in it.
constexpr std::string_view kBuiltinModules[] = {"builtins", "__builtin__"};
constexpr std::string_view kHarmlessBuiltins[] = {
    "bool",   "bytearray", "bytes", "complex", "dict", "float",   "frozenset", "int",   "list",
    "object", "range",     "set",   "slice",   "long", "unicode", "str",       "tuple", "xrange"};
constexpr std::string_view kNumpyModules[] = {"numpy.core.", "numpy._core."};
constexpr std::string_view kHarmlessNumpy[] = {"multiarray.scalar", "multiarray._reconstruct",
                                               "numeric._frombuffer"};
// torch.float32 and the like: data types, and the layouts that go with them.
constexpr std::string_view kTorchConstants[] = {"bfloat16",
                                                "bool",
                                                "complex128",
                                                "complex32",
                                                "complex64",
                                                "double",
                                                "float",
                                                "float16",
                                                "float32",
                                                "float64",
                                                "half",
                                                "int",
                                                "int16",
                                                "int32",
                                                "int64",
                                                "int8",
                                                "long",
                                                "short",
                                                "uint16",
                                                "uint32",
                                                "uint64",
                                                "uint8",
                                                "float8_e4m3fn",
                                                "float8_e5m2",
                                                "strided",
                                                "sparse_coo",
                                                "preserve_format",
                                                "contiguous_format",
                                                "channels_last"};

template <std::size_t kCount>
bool contains(const std::string_view (&names)[kCount], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

bool is_harmless_name(std::string_view name) {
  if (contains(kHarmless, name)) return true;
  for (const std::string_view module : kBuiltinModules)
    if (name.starts_with(module) && name.size() > module.size() && name[module.size()] == '.' &&
        contains(kHarmlessBuiltins, name.substr(module.size() + 1)))
      return true;
  for (const std::string_view module : kNumpyModules)
    if (name.starts_with(module) && contains(kHarmlessNumpy, name.substr(module.size())))
      return true;
  constexpr std::string_view kTorch = "torch.";
  return name.starts_with(kTorch) && contains(kTorchConstants, name.substr(kTorch.size()));
}

}  // namespace io::pickle
