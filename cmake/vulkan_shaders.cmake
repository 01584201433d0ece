# The shaders of the Vulkan device as SPIR-V inside C++: for each native/src/device/vulkan/shaders/NAME.comp a line of
# vulkan_shader_list.inc and an array of vulkan_shader_code.inc, both in VULKAN_SHADER_INCLUDE. The device is left out
# where Vulkan's headers or glslc are missing. Sets VLLM_HAS_VULKAN.
#
# Where there is spirv-cross the same SPIR-V becomes NAME.metal in METAL_SHADERS, a kernel NAME whose buffer 0 is the
# struct of parameters.h and whose function constants are the specialization constants. Addresses in that struct need
# Metal 3. Kernels with instructions that it does not know (*_dot, *_matrix) are left out.
#
# Kernels for cooperative matrices (*_matrix) are built where glslc or glslangValidator knows the extension, which those
# of Debian 12 do not; VLLM_VULKAN_MATRIX tells. They are validated where spirv-val knows it, which it has to where what
# requirements-dev.txt names is installed.
option(VLLM_VULKAN "Build the Vulkan device where its tools are there" ON)
set(VLLM_HAS_VULKAN OFF)
if(NOT VLLM_VULKAN)
  return()
endif()
find_program(GLSLC glslc)
find_program(SPIRV_CROSS spirv-cross)
find_path(VULKAN_INCLUDE vulkan/vulkan.h)
if(NOT GLSLC OR NOT VULKAN_INCLUDE)
  message(NOTICE "Built without the Vulkan device: glslc or vulkan/vulkan.h is missing (packages glslc, libvulkan-dev)")
  return()
endif()
# Those of requirements-dev.txt are newer than Debian 12's. Looked for anew each time, and when that is installed later.
set(development ${CMAKE_SOURCE_DIR}/venv/bin)
find_program(glslang glslangValidator PATHS ${development} NO_DEFAULT_PATH NO_CACHE)
find_program(glslang glslangValidator NO_CACHE)
find_program(spirv_val spirv-val PATHS ${development} NO_DEFAULT_PATH NO_CACHE)
find_program(spirv_val spirv-val NO_CACHE)
if(EXISTS ${CMAKE_SOURCE_DIR}/venv/.requirements)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/venv/.requirements)
endif()
set(VLLM_HAS_VULKAN ON)
set(VLLM_VULKAN_MATRIX OFF)
set(probe ${CMAKE_BINARY_DIR}/cooperative_matrix_probe)
file(WRITE ${probe}.comp "#version 450
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
layout(local_size_x = 32) in;
shared float16_t tile[256];
void main() {
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a;
  coopMatLoad(a, tile, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
}
")
set(matrix_compile ${GLSLC} -O0 --target-env=vulkan1.2)
set(matrix_embed ${matrix_compile} -mfmt=c)
execute_process(COMMAND ${matrix_compile} -o ${probe}.spv ${probe}.comp RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
if(failed AND glslang)
  set(matrix_compile ${glslang} -V --quiet --target-env vulkan1.2)
  set(matrix_embed ${matrix_compile} -x)
  execute_process(COMMAND ${matrix_compile} -o ${probe}.spv ${probe}.comp RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
endif()
set(matrix_validate "")
if(NOT failed)
  set(VLLM_VULKAN_MATRIX ON)
  if(spirv_val)
    execute_process(COMMAND ${spirv_val} --target-env vulkan1.2 ${probe}.spv RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
      set(matrix_validate ON)
    endif()
  endif()
endif()
if(EXISTS ${development}/spirv-val AND NOT matrix_validate)
  message(FATAL_ERROR "venv/bin has the tools of requirements-dev.txt, but of glslc (${GLSLC}), glslangValidator (${glslang}) "
    "and spirv-val (${spirv_val}) none compiles or none validates ${probe}.comp")
endif()
set(VULKAN_SHADER_INCLUDE ${CMAKE_BINARY_DIR}/vulkan_shaders)
set(VULKAN_SHADER_FILES "")
set(METAL_SHADERS ${CMAKE_BINARY_DIR}/metal_shaders)
set(metal_files "")
set(shader_list "")
set(shader_code "")
# Named by us: the list that glslc writes cannot be read where the path has a space.
file(GLOB included CONFIGURE_DEPENDS native/src/device/vulkan/shaders/*.glsl native/src/device/vulkan/shaders/*.h)
file(GLOB shaders CONFIGURE_DEPENDS native/src/device/vulkan/shaders/*.comp)
foreach(shader IN LISTS shaders)
  get_filename_component(name ${shader} NAME_WE)
  if(name MATCHES "_matrix$" AND NOT VLLM_VULKAN_MATRIX)
    continue()
  endif()
  set(out ${VULKAN_SHADER_INCLUDE}/${name})
  # Optimized by the driver, which knows the specialization constants; glslc would unroll the loops of every format and
  # drop the names that the translation to Metal keeps.
  set(compile ${GLSLC} -O0 --target-env=vulkan1.2 ${shader})
  set(embed ${compile} -mfmt=c)
  if(name MATCHES "_matrix$")
    set(compile ${matrix_compile} ${shader})
    set(embed ${matrix_embed} ${shader})
  endif()
  set(validate "")
  if(spirv_val AND (matrix_validate OR NOT name MATCHES "_matrix$"))
    set(validate COMMAND ${spirv_val} --target-env vulkan1.2 ${out}.spv)
  endif()
  add_custom_command(
    OUTPUT ${out}.spv ${out}.inc
    COMMAND ${compile} -o ${out}.spv
    ${validate}
    COMMAND ${embed} -o ${out}.inc
    DEPENDS ${shader} ${included}
    COMMENT "Compiling the shader ${name}"
    VERBATIM)
  list(APPEND VULKAN_SHADER_FILES ${out}.inc)
  if(SPIRV_CROSS AND NOT name MATCHES "_(dot|matrix)$")
    set(metal ${METAL_SHADERS}/${name}.metal)
    add_custom_command(
      OUTPUT ${metal}
      COMMAND ${SPIRV_CROSS} --msl --msl-version 30000 --rename-entry-point main ${name} comp --output ${metal} ${out}.spv
      DEPENDS ${out}.spv
      COMMENT "Translating the shader ${name} to Metal"
      VERBATIM)
    list(APPEND metal_files ${metal})
  endif()
  string(APPEND shader_list "VLLM_SHADER(${name})\n")
  set(open "")
  set(close "")
  if(name MATCHES "_matrix$" AND matrix_embed MATCHES "-x$")  # the words alone
    set(open "{")
    set(close "}")
  endif()
  string(APPEND shader_code "constexpr uint32_t k_${name}[] = ${open}\n#include \"${name}.inc\"\n    ${close};\n")
endforeach()
file(MAKE_DIRECTORY ${VULKAN_SHADER_INCLUDE} ${METAL_SHADERS})
if(SPIRV_CROSS)
  add_custom_target(metal_shaders ALL DEPENDS ${metal_files})
endif()
file(CONFIGURE OUTPUT ${VULKAN_SHADER_INCLUDE}/vulkan_shader_list.inc CONTENT "${shader_list}" @ONLY)
file(CONFIGURE OUTPUT ${VULKAN_SHADER_INCLUDE}/vulkan_shader_code.inc CONTENT "${shader_code}" @ONLY)
