option(LOWBIT_SHARED "Build a shared library" ON)
option(LOWBIT_CUDA "Build the CUDA backend where nvcc is found" ON)
option(LOWBIT_PROGRAM "Build the lowbit program" ON)
option(LOWBIT_EXAMPLES "Build the examples" ON)
option(LOWBIT_TESTS "Build the tests" ON)
option(LOWBIT_FUZZ "Build the fuzz targets (needs clang)" OFF)
option(LOWBIT_TORCH "Build the PyTorch ops (needs a Python with torch >= 2.10)" OFF)
option(LOWBIT_WERROR "Treat warnings as errors" ON)
set(LOWBIT_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")

find_package(Threads REQUIRED)

# What every translation unit of this project is compiled with. Contraction of a*b+c into one rounding is off: the formats promise bits.
add_library(lowbit_options INTERFACE)
target_include_directories(lowbit_options INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(lowbit_options INTERFACE Threads::Threads)
target_compile_options(
  lowbit_options
  INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall
            -Wextra
            -Wshadow
            -Wpedantic
            -ffp-contract=off
            -fno-math-errno>
            $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
# GCC 12 sees overlapping copies inside std::string that are not there.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(lowbit_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(LOWBIT_WERROR)
  target_compile_options(lowbit_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>)
endif()
if(LOWBIT_SANITIZE)
  target_compile_options(lowbit_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${LOWBIT_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${LOWBIT_SANITIZE})
endif()
