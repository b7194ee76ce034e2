// Hardening by the compiler and the linker, verified in the program file.
#include <elf.h>

#include <cstring>
#include <span>
#include <string_view>

#include "tests/apps/program.h"

namespace pinion {
namespace {

// A 64-bit ELF file for this machine or the emulated one.
struct Program {
  std::string bytes = read_file(PINION_BINARY);

  template <class T>
  std::span<const T> table(uint64_t offset, uint64_t count) const {
    EXPECT_LE(offset + count * sizeof(T), bytes.size());
    return {reinterpret_cast<const T*>(bytes.data() + offset), count};
  }

  const Elf64_Ehdr& header() const { return table<Elf64_Ehdr>(0, 1)[0]; }
  std::span<const Elf64_Shdr> sections() const { return table<Elf64_Shdr>(header().e_shoff, header().e_shnum); }

  const Elf64_Phdr* segment(uint32_t type) const {
    for (const Elf64_Phdr& one : table<Elf64_Phdr>(header().e_phoff, header().e_phnum)) {
      if (one.p_type == type) return &one;
    }
    return nullptr;
  }

  const Elf64_Shdr* section(uint32_t type) const {
    for (const Elf64_Shdr& one : sections()) {
      if (one.sh_type == type) return &one;
    }
    return nullptr;
  }

  // A value of the dynamic section; 0 if absent.
  uint64_t dynamic(int64_t tag) const {
    const Elf64_Shdr* dynamic = section(SHT_DYNAMIC);
    if (dynamic == nullptr) return 0;
    for (const Elf64_Dyn& one : table<Elf64_Dyn>(dynamic->sh_offset, dynamic->sh_size / sizeof(Elf64_Dyn))) {
      if (one.d_tag == tag) return one.d_un.d_val;
    }
    return 0;
  }

  // Functions imported from the C library.
  std::vector<std::string> wanted() const {
    std::vector<std::string> names;
    const Elf64_Shdr* symbols = section(SHT_DYNSYM);
    if (symbols == nullptr) return names;
    const uint64_t texts = sections()[symbols->sh_link].sh_offset;
    for (const Elf64_Sym& one : table<Elf64_Sym>(symbols->sh_offset, symbols->sh_size / sizeof(Elf64_Sym))) {
      if (one.st_shndx == SHN_UNDEF) names.emplace_back(bytes.data() + texts + one.st_name);
    }
    return names;
  }

  // Number of occurrences of an instruction's first bytes in code.
  int64_t count(uint32_t instruction) const {
    int64_t found = 0;
    std::string_view code = bytes;
    const std::string_view sought(reinterpret_cast<const char*>(&instruction), sizeof instruction);
    for (size_t at = code.find(sought); at != code.npos; at = code.find(sought, at + 1)) ++found;
    return found;
  }
};

TEST(Hardening, StackTablesAndAddressesAreProtected) {
  const Program program;
  ASSERT_EQ(program.header().e_ident[EI_CLASS], ELFCLASS64);
  EXPECT_EQ(program.header().e_type, ET_DYN) << "at a fixed address";
  EXPECT_TRUE(program.dynamic(DT_FLAGS_1) & DF_1_PIE);
  EXPECT_TRUE(program.dynamic(DT_FLAGS_1) & DF_1_NOW) << "the table of functions stays writable";
  EXPECT_NE(program.segment(PT_GNU_RELRO), nullptr);
  ASSERT_NE(program.segment(PT_GNU_STACK), nullptr);
  EXPECT_FALSE(program.segment(PT_GNU_STACK)->p_flags & PF_X) << "the stack can be executed";
}

#ifdef PINION_STATIC
TEST(Hardening, StaticProgramNeedsNoLibraries) {
  const Program program;
  EXPECT_EQ(program.segment(PT_INTERP), nullptr) << "a dynamic linker is wanted";
  EXPECT_EQ(program.dynamic(DT_NEEDED), 0) << "a shared library is wanted";
}
#endif

#ifdef PINION_HARDENED
TEST(Hardening, FunctionsCheckTheirStackAndBounds) {
#ifdef PINION_STATIC
  GTEST_SKIP() << "the C library's own checks are in the same file; the same objects are tested in the dynamic program";
#endif
  const std::vector<std::string> wanted = Program().wanted();
  EXPECT_EQ(std::ranges::count(wanted, "__stack_chk_fail"), 1);
  EXPECT_GE(std::ranges::count_if(wanted, [](const std::string& name) { return name.ends_with("_chk"); }), 1);
}

TEST(Hardening, IndirectJumpsAreChecked) {
  const Program program;
  constexpr int64_t kMany = 500;  // out of several thousand functions
  if (program.header().e_machine == EM_X86_64) {
    EXPECT_GT(program.count(0xFA1E0FF3), kMany) << "endbr64";
  } else {
    ASSERT_EQ(program.header().e_machine, EM_AARCH64);
    EXPECT_GT(program.count(0xD503233F), kMany) << "paciasp";
    EXPECT_GT(program.count(0xD503245F), kMany) << "bti c";
  }
}
#endif

}  // namespace
}  // namespace pinion
