' Converts documents to PDFs in which all that they show can be read. LibreOffice runs this Basic from its own profile;
' macros of the documents do not run.
Option Explicit

Const WIDEST_COLUMN = 8000 ' in 1/100 mm, as all lengths; longer text is wrapped
Const WIDEST_PAGE = 60000 ' a wider sheet is made smaller
Const RULE = 18
Const MOST_COLUMNS = 1024
Const MOST_ROWS = 20000
Const MOST_CELLS = 400000
Const MOST_BLOCKS = 2000
Const CONTENTS = 23 ' numbers, dates, strings and formulas of com.sun.star.sheet.CellFlags

' Converts the file at KOPUB_SOURCE to the PDF at KOPUB_PDF. An error is written beside the PDF.
Sub Main
    Dim document As Object
    Dim reason As String
    On Error GoTo Failed
    document = StarDesktop.loadComponentFromURL(Environ("KOPUB_SOURCE"), "_blank", 0, LoadOptions())
    If IsNull(document) Then
        reason = "source file could not be loaded"
    Else
        If document.supportsService("com.sun.star.sheet.SpreadsheetDocument") Then WriteCells(document)
        Prepare(document)
        document.storeToURL(Environ("KOPUB_PDF"), Array(Named("FilterName", PdfFilter(document))))
        If Environ("KOPUB_COPY") <> "" Then Copy(document)
        document.close(True)
    End If
Ended:
    On Error Resume Next
    If reason <> "" Then WriteReason(reason)
    StarDesktop.terminate()
    Exit Sub
Failed:
    reason = Error(Err)
    Resume Ended
End Sub

Function LoadOptions()
    Dim reader As String
    reader = Environ("KOPUB_READER")
    ' 0 is MacroExecMode.NEVER_EXECUTE, and UpdateDocMode.NO_UPDATE.
    If reader = "" Then
        LoadOptions = Array(Named("Hidden", True), Named("MacroExecutionMode", 0), Named("UpdateDocMode", 0))
    Else
        LoadOptions = Array(Named("Hidden", True), Named("MacroExecutionMode", 0), Named("UpdateDocMode", 0), _
            Named("FilterName", reader))
    End If
End Function

Function Named(key As String, value)
    Dim pair As New com.sun.star.beans.PropertyValue
    pair.Name = key
    pair.Value = value
    Named = pair
End Function

Function PdfFilter(document As Object) As String
    If document.supportsService("com.sun.star.sheet.SpreadsheetDocument") Then
        PdfFilter = "calc_pdf_Export"
    ElseIf document.supportsService("com.sun.star.presentation.PresentationDocument") Then
        PdfFilter = "impress_pdf_Export"
    ElseIf document.supportsService("com.sun.star.drawing.DrawingDocument") Then
        PdfFilter = "draw_pdf_Export"
    Else
        PdfFilter = "writer_pdf_Export"
    End If
End Function

' Writes a copy of a text document or a presentation in a newer format.
Sub Copy(document As Object)
    Dim filter As String, at As Long
    On Error Resume Next
    filter = "MS Word 2007 XML"
    If document.supportsService("com.sun.star.presentation.PresentationDocument") Then
        filter = "Impress MS PowerPoint 2007 XML"
        For at = 0 To document.DrawPages.Count - 1
            RemoveHidden(document.DrawPages.getByIndex(at))
        Next
    End If
    document.storeToURL(Environ("KOPUB_COPY"), Array(Named("FilterName", filter)))
End Sub

' Removes the shapes that are not shown, which the newer format would show.
Sub RemoveHidden(shapes As Object)
    Dim at As Long
    On Error Resume Next
    For at = shapes.Count - 1 To 0 Step -1
        If Not (shapes.getByIndex(at).Visible And shapes.getByIndex(at).Printable) Then
            shapes.remove(shapes.getByIndex(at))
        ElseIf shapes.getByIndex(at).supportsService("com.sun.star.drawing.GroupShape") Then
            RemoveHidden(shapes.getByIndex(at))
        End If
    Next
End Sub

' Writes the cells of the visible sheets as they are shown: S and the sheet's name, then R and C with the numbers of the
' hidden rows and columns, and T with first row, first column, last row, last column and text.
Sub WriteCells(document As Object)
    Dim stream As Object, sheet As Object, at As Long, left As Long
    On Error Resume Next
    stream = createUnoService("com.sun.star.io.TextOutputStream")
    stream.setOutputStream(createUnoService("com.sun.star.ucb.SimpleFileAccess").openFileWrite( _
        Environ("KOPUB_PDF") & ".cells"))
    stream.setEncoding("UTF-8")
    left = MOST_CELLS
    For at = 0 To document.Sheets.Count - 1
        sheet = document.Sheets.getByIndex(at)
        If sheet.IsVisible Then
            stream.writeString("S" & Chr(9) & sheet.Name & Chr(10))
            left = WriteSheet(stream, sheet, left)
        End If
    Next
    ' Whoever reads the cells knows by it that there are no more.
    If left >= 0 Then stream.writeString("E" & Chr(10))
    stream.closeOutput()
End Sub

' Writes the cells of a sheet, and returns how many more may be written.
Function WriteSheet(stream As Object, sheet As Object, left As Long) As Long
    Dim ranges(), at As Long, row As Long, column As Long, cell As Object, area, used As Object, line As String
    On Error Resume Next
    used = sheet.createCursor()
    used.gotoEndOfUsedArea(False)
    For row = 0 To Least(used.RangeAddress.EndRow, MOST_ROWS * 10)
        If Not sheet.Rows.getByIndex(row).IsVisible Then stream.writeString("R" & Chr(9) & row & Chr(10))
    Next
    For column = 0 To Least(used.RangeAddress.EndColumn, MOST_COLUMNS - 1)
        If Not sheet.Columns.getByIndex(column).IsVisible Then stream.writeString("C" & Chr(9) & column & Chr(10))
    Next
    ranges = sheet.queryContentCells(CONTENTS).RangeAddresses
    For at = 0 To UBound(ranges)
        For row = ranges(at).StartRow To ranges(at).EndRow
            line = ""
            For column = ranges(at).StartColumn To ranges(at).EndColumn
                left = left - 1
                If left < 0 Then
                    WriteSheet = left
                    Exit Function
                End If
                cell = sheet.getCellByPosition(column, row)
                If cell.IsMerged Then
                    area = sheet.createCursorByRange(cell)
                    area.collapseToMergedArea()
                    area = area.RangeAddress
                Else
                    area = cell.RangeAddress
                End If
                line = line & Join(Array("T", row, column, area.EndRow, area.EndColumn, OneLine(cell.String)), Chr(9)) & Chr(10)
            Next
            stream.writeString(line)
        Next
    Next
    WriteSheet = left
End Function

' Returns a text without the signs that part the fields and lines of a file.
Function OneLine(text As String) As String
    OneLine = Join(Split(Join(Split(text, Chr(9)), " "), Chr(10)), Chr(11))
End Function

Sub WriteReason(reason As String)
    Dim file As Integer
    file = FreeFile
    Open Environ("KOPUB_PDF") & ".error" For Output As #file
    Print #file, reason
    Close #file
End Sub

' Makes a document print what it says. A step that fails leaves the document as it is.
Sub Prepare(document As Object)
    Dim at As Long, visible As Long
    On Error Resume Next
    If document.supportsService("com.sun.star.text.GenericTextDocument") Then
        document.RecordChanges = False
        createUnoService("com.sun.star.frame.DispatchHelper").executeDispatch( _
            document.CurrentController.Frame, ".uno:AcceptAllTrackedChanges", "", 0, Array())
    ElseIf document.supportsService("com.sun.star.sheet.SpreadsheetDocument") Then
        For at = 0 To document.Sheets.Count - 1
            ' Sheets without an area are printed where no sheet has one.
            document.Sheets.getByIndex(at).setPrintAreas(Array())
            If document.Sheets.getByIndex(at).IsVisible Then visible = visible + 1
        Next
        For at = 0 To document.Sheets.Count - 1
            If document.Sheets.getByIndex(at).IsVisible Then
                PrepareSheet(document, document.Sheets.getByIndex(at), visible > 1)
            End If
        Next
    End If
End Sub

Sub PrepareSheet(document As Object, sheet As Object, isNamed As Boolean)
    Dim used As Object
    On Error Resume Next
    If sheet.queryContentCells(CONTENTS).Count = 0 Then Exit Sub
    If sheet.isProtected() Then sheet.unprotect("")
    sheet.removeAllManualPageBreaks()
    used = sheet.createCursor()
    used.gotoEndOfUsedArea(False)
    Widen(sheet, used.RangeAddress.EndColumn, used.RangeAddress.EndRow)
    Heighten(sheet, used.RangeAddress.EndRow)
    RuleBlocks(sheet)
    FitPage(document, sheet, used.RangeAddress.EndColumn)
    If isNamed Then WriteName(sheet)
End Sub

' Makes columns as wide as their contents, which would be printed as ### or cut off.
Sub Widen(sheet As Object, lastColumn As Long, lastRow As Long)
    Dim at As Long, before As Long, column As Object
    Dim titles()
    On Error Resume Next
    titles = LoneTexts(sheet, lastColumn, lastRow)
    ' A merged cell does not widen its column.
    For at = 0 To UBound(titles)
        titles(at).merge(True)
    Next
    For at = 0 To Least(lastColumn, MOST_COLUMNS - 1)
        column = sheet.Columns.getByIndex(at)
        If column.IsVisible Then
            before = column.Width
            column.OptimalWidth = True
            If column.Width > WIDEST_COLUMN Then
                column.Width = Most(before, WIDEST_COLUMN)
                sheet.getCellRangeByPosition(at, 0, at, lastRow).IsTextWrapped = True
            ElseIf column.Width < before Then
                column.Width = before
            End If
        End If
    Next
    For at = 0 To UBound(titles)
        titles(at).merge(False)
    Next
End Sub

' Returns the ranges of texts that are alone in their row and print over the empty cells beside them.
Function LoneTexts(sheet As Object, lastColumn As Long, lastRow As Long)
    Dim values(), ranges(), row As Long, column As Long, filled As Long, place As Long, count As Long
    Dim range As Object
    If lastColumn = 0 Or (lastColumn + 1) * (lastRow + 1) > MOST_CELLS Then
        LoneTexts = ranges
        Exit Function
    End If
    values = sheet.getCellRangeByPosition(0, 0, lastColumn, lastRow).getDataArray()
    ReDim ranges(lastRow)
    For row = 0 To lastRow
        filled = 0
        For column = 0 To lastColumn
            If values(row)(column) <> "" Then
                filled = filled + 1
                place = column
                If filled > 1 Then Exit For
            End If
        Next
        If filled = 1 And place < lastColumn And TypeName(values(row)(place)) = "String" Then
            range = sheet.getCellRangeByPosition(place, row, place + 1, row)
            If Not range.IsMerged And Not sheet.getCellByPosition(place, row).IsMerged Then
                ranges(count) = range
                count = count + 1
            End If
        End If
    Next
    If count = 0 Then
        LoneTexts = Array()
    Else
        ReDim Preserve ranges(count - 1)
        LoneTexts = ranges
    End If
End Function

' Makes rows as high as their wrapped text.
Sub Heighten(sheet As Object, lastRow As Long)
    Dim at As Long, before As Long, row As Object
    On Error Resume Next
    If lastRow >= MOST_ROWS Then Exit Sub
    For at = 0 To lastRow
        row = sheet.Rows.getByIndex(at)
        If row.IsVisible And Not row.OptimalHeight Then
            before = row.Height
            row.OptimalHeight = True
            If row.Height < before Then row.Height = before
        End If
    Next
End Sub

' Draws rules around the cells of each block of cells that has none between its columns.
Sub RuleBlocks(sheet As Object)
    Dim ranges(), at As Long, block As Object, border, ruled As New com.sun.star.table.BorderLine2
    On Error Resume Next
    ruled.OuterLineWidth = RULE
    ruled.LineWidth = RULE
    ranges = sheet.queryContentCells(CONTENTS).RangeAddresses
    For at = 0 To Least(UBound(ranges), MOST_BLOCKS - 1)
        block = sheet.createCursorByRange(sheet.getCellRangeByPosition( _
            ranges(at).StartColumn, ranges(at).StartRow, ranges(at).StartColumn, ranges(at).StartRow))
        block.collapseToCurrentRegion()
        border = block.TableBorder2
        If block.Rows.Count > 1 And block.Columns.Count > 1 And border.IsVerticalLineValid _
                And border.VerticalLine.LineWidth = 0 Then
            border.TopLine = ruled
            border.BottomLine = ruled
            border.LeftLine = ruled
            border.RightLine = ruled
            border.HorizontalLine = ruled
            border.VerticalLine = ruled
            border.IsTopLineValid = True
            border.IsBottomLineValid = True
            border.IsLeftLineValid = True
            border.IsRightLineValid = True
            border.IsHorizontalLineValid = True
            border.IsVerticalLineValid = True
            block.TableBorder2 = border
        End If
    Next
End Sub

' Makes the page as wide as the sheet, so that no row is divided between pages.
Sub FitPage(document As Object, sheet As Object, lastColumn As Long)
    Dim at As Long, needed As Long, style As Object
    On Error Resume Next
    style = document.StyleFamilies.getByName("PageStyles").getByName(sheet.PageStyle)
    needed = style.LeftMargin + style.RightMargin + 100
    For at = 0 To Least(lastColumn, MOST_COLUMNS - 1)
        If sheet.Columns.getByIndex(at).IsVisible Then needed = needed + sheet.Columns.getByIndex(at).Width
    Next
    needed = Least(needed, WIDEST_PAGE)
    If needed > style.Width Then
        style.IsLandscape = needed > style.Height
        style.Height = Most(style.Height, needed / Sqr(2))
        style.Width = needed
    End If
    style.ScaleToPagesY = 0
    style.ScaleToPagesX = 1
    ' LibreOffice's own head and foot say the sheet's name and a number, in no file but its own.
    If TextOf(style.RightPageHeaderContent) = "???" Then style.HeaderIsOn = False
    If TextOf(style.RightPageFooterContent) = "Page 1" Then style.FooterIsOn = False
End Sub

Function TextOf(head As Object) As String
    TextOf = head.LeftText.String & head.CenterText.String & head.RightText.String
End Function

' Writes the name of a sheet above it as a heading.
Sub WriteName(sheet As Object)
    Dim cell As Object
    On Error Resume Next
    sheet.Rows.insertByIndex(0, 2)
    cell = sheet.getCellByPosition(0, 0)
    cell.String = sheet.Name
    cell.CharHeight = 16
    cell.CharHeightAsian = 16
    cell.CharWeight = com.sun.star.awt.FontWeight.BOLD
    cell.CharWeightAsian = com.sun.star.awt.FontWeight.BOLD
    sheet.Rows.getByIndex(0).OptimalHeight = True
End Sub

Function Least(one, other)
    Least = IIf(one < other, one, other)
End Function

Function Most(one, other)
    Most = IIf(one > other, one, other)
End Function
